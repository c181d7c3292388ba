import type { Me } from "../shared/types";

/** The pages of the navigation, and the second key of `g …` that goes there. */

export const PAGES = [
  { to: "/inbox", name: "Inbox", key: "i" },
  { to: "/chat", name: "Chat", key: "c" },
  { to: "/runs", name: "Runs", key: "r" },
  { to: "/history", name: "History", key: "h" },
  { to: "/insights", name: "Insights", key: "n" },
] as const;

/** Chat users see their own chats, and nothing of other people's. */
export function pagesOf(me: Me): (typeof PAGES)[number][] {
  return PAGES.filter((page) => me.role !== "chat" || page.to === "/chat");
}
