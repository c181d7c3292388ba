/** Channels in words. */

import type { ChannelHealth, TestMessage } from "./api";

const CHANNELS: Record<string, { name: string; text: string }> = {
  push: {
    name: "Push messages",
    text: "Notifications with the title and the risk of a request, also while this page is closed. They open the request.",
  },
  telegram: { name: "Telegram", text: "A message to each of your accounts, which can decide where it shows all that you approve." },
  slack: { name: "Slack", text: "A direct message to each of your accounts, which can decide where it shows all that you approve." },
  mail: { name: "Mail", text: "A mail to your address, with a link to the request. A confirmed address also gets codes that decide." },
};

/** The name of a channel, and what it does. */
export function channelWords(channel: string): { name: string; text: string } {
  return CHANNELS[channel] ?? { name: channel, text: "A message to each of your accounts." };
}

/** What became of a test message. */
export function testWords({ sent, error }: TestMessage): string {
  const where = `Sent to ${sent} ${sent === 1 ? "account" : "accounts"}.`;
  if (!error) return where;
  return sent ? `${where} Not sent to another one: ${error}` : `Not sent: ${error}`;
}

export const STATES: Record<ChannelHealth["state"], { name: string; tone: "good" | "bad" }> = {
  ok: { name: "Working", tone: "good" },
  failing: { name: "Messages fail", tone: "bad" },
  down: { name: "No answer", tone: "bad" },
};

/** The time zones that this browser knows, with the one that is set. */
export function timeZones(current: string): string[] {
  return [...new Set(["UTC", current, ...Intl.supportedValuesOf("timeZone")])].sort();
}
