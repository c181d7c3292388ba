import type { ReactElement } from "react";
import { Button } from "../shared/components/Button";
import { LoadError, Skeleton } from "../shared/components/States";
import { Age } from "../shared/components/Time";
import { Link } from "../shared/router";
import type { Resource } from "../shared/useResource";
import type { Chat } from "../shared/types";
import { visible } from "../shared/visible";

const STATUS_LABELS: Record<string, string> = { paused: "waiting for a decision", running: "running", failed: "failed" };

interface ChatListProps {
  chats: Resource<{ items: Chat[] }>;
  current: string | undefined;
  /** Show the agent's name, because there are several. */
  named: boolean;
  onNew: () => void;
  onOpen: () => void;
}

/** The user's own chats, newest first. */
export function ChatList({ chats, current, named, onNew, onOpen }: ChatListProps): ReactElement {
  return (
    <nav className="chats" aria-label="Your chats">
      <div className="side-head">
        <h2>Chats</h2>
        <Button small icon="plus" onClick={onNew}>
          New chat
        </Button>
      </div>
      {chats.error && !chats.data ? (
        <LoadError what="your chats" error={chats.error} retry={chats.reload} />
      ) : chats.loading ? (
        <Skeleton rows={4} label="Loading chats" />
      ) : chats.data?.items.length === 0 ? (
        <p className="muted small chats-none">No chats yet.</p>
      ) : (
        <ul>
          {chats.data?.items.map((chat) => (
            <li key={chat.id}>
              <Link
                to={chatPath(chat.id, chat.agent)}
                className="chats-row"
                aria-current={chat.id === current ? "page" : undefined}
                onClick={onOpen}
              >
                <span className="chats-title">{visible(chat.title) || "Untitled"}</span>
                <span className="chats-meta">
                  {chat.status === "paused" && <span className="dot dot-wait" aria-hidden="true" />}
                  {chat.status === "running" && <span className="dot dot-run" aria-hidden="true" />}
                  {STATUS_LABELS[chat.status] && <span>{STATUS_LABELS[chat.status]} · </span>}
                  {named && <span>{chat.agent} · </span>}
                  <Age at={chat.updated_at} />
                </span>
              </Link>
            </li>
          ))}
        </ul>
      )}
    </nav>
  );
}

export const chatPath = (id: string, agent: string | null): string =>
  `/chat/${encodeURIComponent(id)}${agent ? `?agent=${encodeURIComponent(agent)}` : ""}`;
