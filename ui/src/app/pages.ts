import type { Me } from "../shared/types";

/** The pages in the navigation. `key` is the second key of the `g …` shortcut. */
export const PAGES = [
  { to: "/inbox", name: "Inbox", key: "i" },
  { to: "/chat", name: "Chat", key: "c" },
  { to: "/runs", name: "Runs", key: "r" },
  { to: "/history", name: "History", key: "h" },
  { to: "/insights", name: "Insights", key: "n" },
  { to: "/people", name: "People", key: "p" },
] as const;

/** The role `chat` has access to its own chats only, and admins alone see people. */
export function pagesOf(me: Me): (typeof PAGES)[number][] {
  return PAGES.filter(({ to }) => (me.role === "chat" ? to === "/chat" : to !== "/people" || me.role === "admin"));
}
