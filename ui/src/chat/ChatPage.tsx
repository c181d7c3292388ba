import { generateId } from "ai";
import { useEffect, useRef, useState, type ReactElement } from "react";
import { api } from "../shared/api";
import { Button } from "../shared/components/Button";
import { Effects } from "../shared/components/Effects";
import { EmptyState, LoadError, Skeleton } from "../shared/components/States";
import { useChanges, useLive } from "../shared/live";
import { useResource } from "../shared/useResource";
import { navigate, setQuery, useQuery } from "../shared/router";
import { useMe } from "../shared/session";
import { ChatList, chatPath } from "./ChatList";
import { Conversation } from "./Conversation";
import { loadMessages } from "./useThread";
import "./chat.css";
import "./composer.css";
import "./conversation.css";

const WIDE = "(min-width: 1180px)";

/** `/chat` starts a chat, `/chat/{id}` continues one. `?agent=` selects the agent. */
export default function ChatPage({ id }: { id?: string }): ReactElement {
  const { demo } = useMe();
  const [query] = useQuery();
  const [draft, setDraft] = useState(() => generateId());
  const [listOpen, setListOpen] = useState(false);
  const chats = useResource("chats", api.chats);
  const agents = useResource("agents", api.agents);
  useChanges(chats.reload, 400);
  // Without access to the live feed, the list of executions is reloaded after each answer.
  const fed = useLive().state !== "closed";
  const [turns, setTurns] = useState(0);

  const own = chats.data?.items.find((chat) => chat.id === id);
  const chatAgents = agents.data?.items.filter(({ chat }) => chat) ?? [];
  const defaultAgent = chatAgents.find((agent) => agent.default)?.name ?? chatAgents[0]?.name ?? null;
  const agent = query.get("agent") ?? own?.agent ?? defaultAgent;
  const startChat = () => {
    setListOpen(false);
    setDraft(generateId());
    navigate(agent && agent !== defaultAgent ? `/chat?agent=${encodeURIComponent(agent)}` : "/chat");
  };
  const settled = query.has("agent") || agents.data !== undefined || agents.error !== undefined;
  const begun = useRef(new Set<string>());
  const current = id ?? draft;

  useEffect(() => {
    const close = (event: KeyboardEvent) => event.key === "Escape" && setListOpen(false);
    window.addEventListener("keydown", close);
    return () => window.removeEventListener("keydown", close);
  }, []);

  return (
    <main className="chat" data-demo={demo || undefined}>
      <div className="chat-side" data-open={listOpen || undefined}>
        <ChatList chats={chats} current={id} named={chatAgents.length > 1} onNew={startChat} onOpen={() => setListOpen(false)} />
      </div>
      {listOpen && <button type="button" className="chat-shade" aria-label="Close chat list" onClick={() => setListOpen(false)} />}
      <div className="chat-main">
        <div className="chat-bar" data-plain={chatAgents.length > 1 && !id ? undefined : true}>
          <Button small tone="ghost" icon="panel" className="chat-toggle" aria-expanded={listOpen} onClick={() => setListOpen(!listOpen)}>
            Chats
          </Button>
          {chatAgents.length > 1 && !id ? (
            <label className="chat-agent">
              <span className="muted small">Agent</span>
              <select value={agent ?? ""} onChange={(event) => setQuery({ agent: event.target.value })}>
                {chatAgents.map(({ name }) => (
                  <option key={name}>{name}</option>
                ))}
              </select>
            </label>
          ) : (
            <span className="chat-with muted small">{agent}</span>
          )}
          <Button small tone="ghost" icon="plus" className="chat-toggle" onClick={startChat}>
            New
          </Button>
        </div>
        {agents.data && chatAgents.length === 0 && !id ? (
          <NoChatAgents others={agents.data.items.map(({ name }) => name)} />
        ) : settled ? (
          <ChatLoader
            key={current}
            id={current}
            agent={agent}
            fresh={id === undefined || begun.current.has(current)}
            about={chatAgents.find(({ name }) => name === agent)}
            onBegin={() => {
              if (id) return;
              begun.current.add(current);
              navigate(chatPath(current, agent), { replace: true });
            }}
            onSettled={() => {
              chats.reload();
              setTurns((count) => count + 1);
            }}
          />
        ) : (
          <Skeleton rows={6} label="Loading chat" />
        )}
      </div>
      <aside className="chat-ran">
        <Effects key={fed ? 0 : turns} open={matchMedia(WIDE).matches} />
      </aside>
    </main>
  );
}

type ChatLoaderProps = Pick<Parameters<typeof Conversation>[0], "id" | "agent" | "about" | "onBegin" | "onSettled"> & { fresh: boolean };

/** Loads the stored messages of an existing chat before its stream is joined. */
function ChatLoader({ fresh, ...rest }: ChatLoaderProps): ReactElement {
  const [isNew] = useState(fresh);
  const messages = useResource(isNew ? null : "messages", (signal) => loadMessages(rest.agent, rest.id, signal));
  if (isNew) return <Conversation {...rest} first={[]} known={false} />;
  if (messages.error && !messages.data) return <LoadError what="this chat" error={messages.error} retry={messages.reload} />;
  if (!messages.data) return <Skeleton rows={6} label="Loading chat" />;
  return <Conversation {...rest} first={messages.data} known />;
}

function NoChatAgents({ others }: { others: string[] }): ReactElement {
  return (
    <EmptyState icon="question" title="No agent to chat with">
      <p className="muted">
        {others.length > 0
          ? `You cannot chat with ${others.join(", ")} here. Requests appear in the inbox.`
          : "Requests from other agents appear in the inbox. To chat with an agent here, start the server with it:"}
      </p>
      {others.length === 0 && <code>sayso serve module:agent</code>}
    </EmptyState>
  );
}
