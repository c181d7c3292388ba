/** What values say to a person: amounts, accounts, dates, addresses, SQL and diffs. The raw value stays next to it. */

import { MONTHS, clock, thousands } from "../format";
import type { Json, JsonObject } from "../types";

const SIGNS: Record<string, string> = { eur: "€", euro: "€", euros: "€", usd: "$", dollar: "$", dollars: "$", gbp: "£", pounds: "£", chf: "CHF", jpy: "¥", yen: "¥" };
const AMOUNTS = ["amount", "price", "total", "sum", "cost", "fee"];
const RECIPIENTS = ["to", "recipient", "recipients", "payee", "beneficiary", "customer"];
const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/** The words of a name: `amount_eur` and `amountEur` are `amount` and `eur`. */
const wordsOf = (name: string) => name.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase().split(/[^a-z]+/);

function grouped(value: number): string {
  const [whole, part] = String(Math.abs(value)).split(".");
  return `${value < 0 ? "−" : ""}${thousands(Number(whole))}${part ? `.${part.length === 1 ? `${part}0` : part}` : ""}`;
}

/** `€ 1,200`, if a number is money by its name, or by a currency among the other arguments. */
export function amountOf(name: string, value: Json, args: JsonObject = {}): string | null {
  const text = typeof value === "string" && /^-?\d{1,15}(\.\d{1,4})?$/.test(value);
  if (!text && (typeof value !== "number" || !/^-?\d{1,15}(\.\d+)?$/.test(String(value)))) return null;
  const words = wordsOf(name);
  if (words.includes("cents") || words.includes("pence")) return null;
  const currency = typeof args.currency === "string" ? args.currency.toLowerCase() : "";
  const unit = words.find((word) => word in SIGNS) ?? (words.some((word) => AMOUNTS.includes(word)) && currency in SIGNS ? currency : undefined);
  return unit ? `${SIGNS[unit]}\u00a0${grouped(Number(value))}` : null;
}

const isIban = (text: string) => /^[A-Z]{2}\d{2}[A-Z0-9]{11,30}$/.test(text.replaceAll(" ", ""));

/** Whether the two check digits of an IBAN fit the rest. */
function ibanFits(text: string): boolean {
  const moved = text.slice(4) + text.slice(0, 4);
  let rest = 0;
  for (const letter of moved) for (const digit of String(parseInt(letter, 36))) rest = (rest * 10 + Number(digit)) % 97;
  return rest === 1;
}

export function ibanOf(value: Json): string | null {
  if (typeof value !== "string" || !isIban(value)) return null;
  const text = value.replaceAll(" ", "");
  return `IBAN ${text.match(/.{1,4}/g)!.join("\u00a0")}${ibanFits(text) ? "" : " (its check digits are wrong)"}`;
}

export function dateOf(value: Json): string | null {
  const found = typeof value === "string" ? /^(\d{4})-(\d\d)-(\d\d)(T\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d))?$/.exec(value) : null;
  if (!found) return null;
  const date = found[4] ? new Date(value as string) : new Date(Number(found[1]), Number(found[2]) - 1, Number(found[3]));
  if (Number.isNaN(date.getTime()) || (!found[4] && date.getDate() !== Number(found[3]))) return null;
  const day = `${DAYS[date.getDay()]}, ${MONTHS[date.getMonth()]} ${date.getDate()}, ${date.getFullYear()}`;
  return found[4] ? `${day}, ${clock(date.getTime())} your time` : day;
}

/** The host that a URL really leads to, which may not be what it looks like (`https://bank.com@evil.example`). */
export function hostOf(value: Json): string | null {
  if (typeof value !== "string" || !/^https?:\/\/\S+$/i.test(value)) return null;
  try {
    return new URL(value).host;
  } catch {
    return null;
  }
}

/** What a value says besides its text; null if nothing. */
export function inWords(name: string, value: Json, args?: JsonObject): string | null {
  const host = hostOf(value);
  return amountOf(name, value, args) ?? ibanOf(value) ?? dateOf(value) ?? (host && `leads to ${host}`);
}

/** What decides: how much, to whom and to which account, as `€ 1,200 to Hooli, IBAN DE89 …`; empty without money. */
export function decisive(args: Json): string {
  if (args === null || typeof args !== "object" || Array.isArray(args)) return "";
  const entries = Object.entries(args);
  const amounts = entries.flatMap(([name, value]) => amountOf(name, value, args) ?? []);
  const accounts = entries.flatMap(([, value]) => ibanOf(value) ?? []);
  if (amounts.length + accounts.length === 0) return "";
  const to = entries.find(([name]) => wordsOf(name).some((word) => RECIPIENTS.includes(word)))?.[1];
  const who = Array.isArray(to) ? `${thousands(to.length)} recipients` : typeof to === "string" && to.length < 80 && !isIban(to) ? to : "";
  return [[amounts.join(" and "), who && `to ${who}`].filter(Boolean).join(" "), ...accounts].filter(Boolean).join(", ");
}

export type Shape = "sql" | "diff" | "markdown" | "text";

/** What a text is, by its name and content. Only for its colours: the text is complete in each. */
export function shapeOf(name: string, text: string): Shape {
  if (/^\s*(with|select|insert|update|delete|drop|alter|create|truncate|grant|revoke|merge)\s/i.test(text) && /sql|query|statement/i.test(name)) return "sql";
  if (/^@@ .* @@/m.test(text) && /^[-+]/m.test(text)) return "diff";
  const marks = [/^#{1,6} \S/m, /\*\*\S.*\S\*\*/, /^\s*[-*] \S/m, /^```/m, /\[[^\]]+\]\(https?:/, /^\|.+\|$/m];
  return text.includes("\n") && marks.filter((mark) => mark.test(text)).length >= 2 ? "markdown" : "text";
}

/** The columns of a list that reads as a table: flat objects with the same keys; null if it is none. */
export function columnsOf(value: Json): string[] | null {
  if (!Array.isArray(value) || value.length < 2) return null;
  const first = value[0];
  if (first === null || typeof first !== "object" || Array.isArray(first)) return null;
  const names = Object.keys(first);
  const same = (row: Json) =>
    row !== null && typeof row === "object" && !Array.isArray(row) && Object.keys(row).length === names.length &&
    names.every((name) => name in row && (row[name] === null || typeof row[name] !== "object"));
  return names.length > 0 && names.length <= 8 && value.every(same) ? names : null;
}

const KEYWORDS = /\b(?:select|from|where|and|or|not|null|is|in|like|between|insert|into|values|update|set|delete|drop|table|alter|create|truncate|join|left|right|inner|outer|on|group|by|order|limit|offset|having|union|all|distinct|as|with|returning|exists|case|when|then|else|end|grant|revoke|to|cascade|index|view|database|schema|merge|using)\b/gi;
const TOKENS = new RegExp(`(--[^\\n]*|/\\*[\\s\\S]*?\\*/)|('(?:[^']|'')*')|(\\b\\d+(?:\\.\\d+)?\\b)|(${KEYWORDS.source})`, "gi");

/** Cut SQL into pieces with a class each. Joined, they are the text. */
export function sqlPieces(text: string): [kind: "" | "comment" | "string" | "number" | "keyword", text: string][] {
  const pieces: ReturnType<typeof sqlPieces> = [];
  let at = 0;
  for (const found of text.matchAll(TOKENS)) {
    if (found.index > at) pieces.push(["", text.slice(at, found.index)]);
    const kind = found[1] ? "comment" : found[2] ? "string" : found[3] ? "number" : "keyword";
    pieces.push([kind, found[0]]);
    at = found.index + found[0].length;
  }
  if (at < text.length) pieces.push(["", text.slice(at)]);
  return pieces;
}
