"""The browser app: `searchformer serve`."""
