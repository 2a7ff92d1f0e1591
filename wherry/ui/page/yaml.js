// Objects as YAML, without the fields that only servers read (managedFields), as kubectl shows them.

import { HIDDEN } from "./dom.js";

// JSON's texts are YAML's, but for characters that YAML counts as the end of a line or does not allow; those that are invisible
// are shown by their number, as everywhere, in a form that parsers read.
const ESCAPED = new RegExp(`${HIDDEN.source}|[\\ufffe\\uffff]`, "gu");
const PLAIN = /^[A-Za-z_/][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*$/;
const WORDS = /^(?:y|n|yes|no|on|off|true|false|null|nan|inf)$/i;

function scalar(value) {
  if (typeof value !== "string") return JSON.stringify(value ?? null);
  if (PLAIN.test(value) && !WORDS.test(value)) return value;
  return JSON.stringify(value).replace(ESCAPED, escape);
}

function escape(character) {
  const number = character.codePointAt(0).toString(16);
  return number.length > 4 ? `\\U${number.padStart(8, "0")}` : `\\u${number.padStart(4, "0")}`;
}

function lines(value, indent) {
  if (Array.isArray(value)) {
    return value.flatMap((each) => {
      const inner = block(each) ? lines(each, indent + "  ") : [];
      return block(each) ? [`${indent}- ${inner[0].trimStart()}`, ...inner.slice(1)] : [`${indent}- ${flow(each)}`];
    });
  }
  return Object.entries(value).flatMap(([name, each]) => {
    if (!block(each)) return [`${indent}${scalar(name)}: ${flow(each)}`];
    return [`${indent}${scalar(name)}:`, ...lines(each, Array.isArray(each) ? indent : indent + "  ")];
  });
}

function block(value) {
  return value !== null && typeof value === "object" && Object.keys(value).length > 0;
}

function flow(value) {
  if (Array.isArray(value)) return "[]";
  return value !== null && typeof value === "object" ? "{}" : scalar(value);
}

/** Return an object's YAML. */
export function yaml(object) {
  const metadata = { ...object.metadata };
  delete metadata.managedFields;
  return lines({ ...object, metadata }, "").join("\n") + "\n";
}
