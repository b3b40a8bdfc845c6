// A tool's parameters against new arguments: the common part of JSON Schema, as advice while typing.
//
// The engine checks the whole schema; what this does not know it lets through.
import { Exact, isObject, same } from "./exact.js";

function kindOf(value) {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  if (value instanceof Exact) return /^-?\d+(\.0+)?$/.test(value.text) ? "integer" : "number";
  if (typeof value === "number") return Number.isInteger(value) ? "integer" : "number";
  return isObject(value) ? "object" : typeof value;
}

const fits = (kind, wanted) => kind === wanted || (wanted === "number" && kind === "integer");

/** Sentences about what does not fit; `at` names the place. */
export function complaints(schema, value, at = "") {
  if (!isObject(schema)) return [];
  const name = at || "The arguments";
  const kind = kindOf(value);
  const wanted = schema.type === undefined ? [] : [schema.type].flat();
  if (wanted.length && !wanted.some((one) => fits(kind, one))) {
    return [`${name} must be ${wanted.join(" or ")}, not ${kind}.`];
  }
  const made = [];
  if (Array.isArray(schema.enum) && !schema.enum.some((one) => same(one, value))) {
    made.push(`${name} must be one of ${schema.enum.map((one) => JSON.stringify(one)).join(", ")}.`);
  }
  if (kind === "integer" || kind === "number") {
    if (schema.minimum !== undefined && Number(value) < Number(schema.minimum)) made.push(`${name} must be at least ${schema.minimum}.`);
    if (schema.maximum !== undefined && Number(value) > Number(schema.maximum)) made.push(`${name} must be at most ${schema.maximum}.`);
  }
  if (kind === "string") {
    if (schema.minLength !== undefined && value.length < Number(schema.minLength)) made.push(`${name} must have at least ${schema.minLength} characters.`);
    if (schema.maxLength !== undefined && value.length > Number(schema.maxLength)) made.push(`${name} must have at most ${schema.maxLength} characters.`);
  }
  if (kind === "object") {
    const known = isObject(schema.properties) ? schema.properties : {};
    for (const key of schema.required ?? []) if (!Object.hasOwn(value, key)) made.push(`${at ? `${at}.` : ""}${key} is missing.`);
    for (const key of Object.keys(value)) {
      const place = at ? `${at}.${key}` : key;
      if (Object.hasOwn(known, key)) made.push(...complaints(known[key], value[key], place));
      else if (schema.additionalProperties === false) made.push(`${place} is not an argument of this tool.`);
    }
  }
  if (kind === "array" && isObject(schema.items)) {
    value.forEach((part, index) => made.push(...complaints(schema.items, part, `${at || "item"}[${index}]`)));
  }
  return made;
}
