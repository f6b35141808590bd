"""A server that speaks MongoDB's wire protocol: `python wire_server.py --port 27018 --db memory`.

It is `nx-27017`, which keeps collections as tables of SQLite, and so takes names of letters, digits and underscores
only, in one database for all. Names of databases and collections are therefore spelt in these characters as commands
arrive; the protocol and the commands are the server's own.
"""

import re

from nx_27017.handler import NeoSQLiteHandler
from nx_27017.nx_27017 import main


def table_name(database: str, collection: str) -> str:
    """A name that no other collection has, of letters, digits and underscores."""
    return "t_" + re.sub(r"[^A-Za-z0-9]", lambda match: f"_{ord(match[0]):x}_", f"{database}/{collection}")


def spelt(handle):
    """A handler of messages that sees names of tables in place of names of collections."""

    def wrapper(self, message, *rest):
        for kind, body in message["sections"]:
            if kind == "body":
                command = next(iter(body))
                for field in (command, "collection"):
                    name = body.get(field)
                    if isinstance(name, str) and not name.startswith("t_"):
                        body[field] = table_name(body.get("$db", "test"), name)
        return handle(self, message, *rest)

    return wrapper


if __name__ == "__main__":
    NeoSQLiteHandler.handle_insert = spelt(NeoSQLiteHandler.handle_insert)
    NeoSQLiteHandler.handle_command = spelt(NeoSQLiteHandler.handle_command)
    main()
