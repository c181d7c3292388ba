/** Roles, devices and accounts in words. */

import type { Credential, Role } from "./api";

export const ROLES: Record<Role, { name: string; text: string }> = {
  chat: { name: "Chat user", text: "Chats with agents, and decides what they asked for in their own chats." },
  reviewer: { name: "Reviewer", text: "Decides what the policy lets them decide." },
  admin: { name: "Admin", text: "Sees everything, and changes people and tokens." },
  agent: { name: "Agent", text: "Opens requests and runs what was approved. It never decides." },
};

/** In this order: Edge and Chrome also call themselves Safari, and Edge also Chrome. */
const BROWSERS: [RegExp, string][] = [
  [/Edg(e|A|iOS)?\//, "Edge"],
  [/Firefox\/|FxiOS\//, "Firefox"],
  [/OPR\//, "Opera"],
  [/Chrome\/|CriOS\//, "Chrome"],
  [/Safari\//, "Safari"],
];

const SYSTEMS: [RegExp, string][] = [
  [/iPhone/, "iPhone"],
  [/iPad/, "iPad"],
  [/Android/, "Android"],
  [/Windows/, "Windows"],
  [/Mac OS X|Macintosh/, "Mac"],
  [/CrOS/, "ChromeOS"],
  [/Linux/, "Linux"],
];

const nameIn = (names: [RegExp, string][], text: string) => names.find(([pattern]) => pattern.test(text))?.[1];

/** `Firefox on Windows`, or what the browser says of itself if it is not a known one. */
export function deviceName(device: string): string {
  const browser = nameIn(BROWSERS, device);
  const system = nameIn(SYSTEMS, device);
  if (browser) return system ? `${browser} on ${system}` : browser;
  return device || "Unknown device";
}

/** The issuer and subject of a provider's account; null for a person who is known here only. */
export function accountOf(origin: string): { issuer: string; subject: string } | null {
  if (origin === "local") return null;
  try {
    const [issuer, subject] = JSON.parse(origin) as string[];
    return { issuer: issuer!, subject: subject! };
  } catch {
    return { issuer: origin, subject: "" };
  }
}

/** `login.example.com`, or the issuer as it is. */
export function issuerHost(issuer: string): string {
  return /^https?:\/\/([^/]+)/.exec(issuer)?.[1] ?? issuer;
}

const KINDS: Record<Credential["kind"], [one: string, many: string]> = {
  session: ["session", "sessions"],
  token: ["token", "tokens"],
  passkey: ["passkey", "passkeys"],
  link: ["sign-in link", "sign-in links"],
  chat: ["chat account", "chat accounts"],
  code: ["linking code", "linking codes"],
  push: ["push subscription", "push subscriptions"],
};

export function count(number: number, one: string, many = `${one}s`): string {
  return `${number} ${number === 1 ? one : many}`;
}

/** `2 sessions and 1 token`; empty if there are none. */
export function countCredentials(credentials: Credential[]): string {
  const parts = Object.entries(KINDS).flatMap(([kind, [one, many]]) => {
    const number = credentials.filter((credential) => credential.kind === kind).length;
    return number ? [count(number, one, many)] : [];
  });
  return parts.length > 1 ? `${parts.slice(0, -1).join(", ")} and ${parts.at(-1)}` : (parts[0] ?? "");
}

/** The words of a comma-separated field. */
export function commaSeparated(text: string): string[] {
  return text
    .split(",")
    .map((word) => word.trim())
    .filter(Boolean);
}
