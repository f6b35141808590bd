// Lists what the OpenAPI document says.
import { get } from "./api.js";
import { element } from "./duel.js";

const named = (schema) => schema?.$ref?.split("/").at(-1) ?? schema?.title ?? schema?.type ?? "";
const document_ = await get("/openapi.json");
for (const [path, methods] of Object.entries(document_.paths)) for (const [method, about] of Object.entries(methods)) {
  const box = element("section", "card"), fields = element("dl");
  const body = about.requestBody?.content?.["application/json"]?.schema, schema = document_.components.schemas[named(body)];
  for (const [name, field] of Object.entries(schema?.properties ?? {})) fields.append(element("dt", "token", name), element("dd", "", field.description ?? named(field)));
  for (const parameter of about.parameters ?? []) fields.append(element("dt", "token", parameter.name), element("dd", "", parameter.in));
  box.append(element("h2", "", `${method.toUpperCase()} ${path}`), element("p", "note", about.description), fields);
  document.getElementById("paths").append(box);
}
