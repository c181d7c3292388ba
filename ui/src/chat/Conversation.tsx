import type { UIMessage } from "ai";
import { useEffect, useRef, type ReactElement } from "react";
import { Button } from "../shared/components/Button";
import { Notice } from "../shared/components/States";
import type { Agent } from "../shared/types";
import { Composer } from "./Composer";
import { Message } from "./Message";
import { errorMessage, keepUntilCaughtUp } from "./messageParts";
import { useStickToBottom } from "./useStickToBottom";
import { useThread } from "./useThread";
import { Welcome } from "./Welcome";

interface ConversationProps {
  id: string;
  agent: string | null;
  about: Agent | undefined;
  first: UIMessage[];
  known: boolean;
  /** The first message is being sent, so the chat gets its URL. */
  onBegin: () => void;
  /** An answer has ended or is paused. */
  onSettled: () => void;
}

export function Conversation({ id, agent, about, first, known, onBegin, onSettled }: ConversationProps): ReactElement {
  const thread = useThread({ agent, id, messages: first, known });
  const before = useRef(thread.messages);
  const shown = keepUntilCaughtUp(before.current, thread.messages, thread.busy);
  useEffect(() => {
    before.current = shown;
  });

  useEffect(() => {
    if (!thread.busy) onSettled();
  }, [thread.busy]);
  const { box, following, onScroll, scrollToEnd } = useStickToBottom(shown);
  const send = (text: string) => {
    onBegin();
    thread.send(text);
    scrollToEnd();
  };
  const last = shown.at(-1);
  const pending = thread.sent || (thread.busy && last?.role === "user");
  const name = about?.name ?? agent ?? "Agent";
  return (
    <div className="conversation">
      {shown.length > 0 && <h1 className="sr-only">Chat with {name}</h1>}
      <div ref={box} className="conversation-scroll" onScroll={onScroll}>
        <div className="conversation-inner">
          {shown.length === 0 && !thread.busy ? (
            <Welcome agent={about} onPick={send} />
          ) : (
            <div role="log" aria-label="Conversation" aria-busy={thread.busy}>
              <ol className="messages" data-testid="messages">
                {shown.map((message) => (
                  <Message key={message.id} message={message} thread={thread} last={message === last} agent={name} />
                ))}
              </ol>
            </div>
          )}
          {pending && (
            <p className="thinking" role="status">
              <span className="thinking-dots" aria-hidden="true">
                <span />
                <span />
                <span />
              </span>
              <span className="sr-only">The agent is working</span>
            </p>
          )}
          {thread.stopped && (
            <Notice>
              <p>You stopped showing this answer. The run continues, and approved calls still run.</p>
              <Button small onClick={thread.follow}>
                Show the rest
              </Button>
            </Notice>
          )}
          {thread.error && (
            <div role="alert">
              <Notice tone="bad" title="The answer was interrupted">
                <p className="wrap">{errorMessage(thread.error)}</p>
                <Button small onClick={thread.retry}>
                  Try again
                </Button>
              </Notice>
            </div>
          )}
        </div>
      </div>
      {!following && (
        <div className="to-end">
          <Button small icon="chevronDown" onClick={scrollToEnd}>
            Latest
          </Button>
        </div>
      )}
      <Composer open={thread.open.length} busy={thread.busy} focus={!known} onSend={send} onStop={thread.stop} />
    </div>
  );
}
