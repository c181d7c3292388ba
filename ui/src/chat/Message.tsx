import type { UIMessage } from "ai";
import { memo, type ReactElement } from "react";
import { visible } from "../shared/visible";
import { RequestCard } from "./RequestCard";
import { isOpen, pieces, textOf } from "./messageParts";
import { ToolCall } from "./ToolCall";
import type { Thread } from "./useThread";

interface MessageProps {
  message: UIMessage;
  thread: Thread;
  last: boolean;
  agent: string;
}

/** One message, as plain text: nothing in it is interpreted as markup. */
function MessageView({ message, thread, last, agent }: MessageProps): ReactElement {
  if (message.role === "user") {
    return (
      <li className="message message-user" data-testid="message-user">
        <span className="sr-only">You: </span>
        <div className="bubble wrap">{visible(textOf(message))}</div>
      </li>
    );
  }
  return (
    <li className="message message-agent" data-testid="message-agent">
      <p className="message-who">{visible(agent)}</p>
      {pieces(message).map((piece, index, all) => {
        if (piece.kind === "text") {
          return (
            <p key={piece.key} className="message-text wrap" data-streaming={(piece.streaming && last && thread.busy) || undefined}>
              {visible(piece.text)}
            </p>
          );
        }
        const open = isOpen(piece.call);
        if (open && last) {
          const above = all.slice(0, index).findLast((before) => before.kind === "text");
          return <RequestCard key={piece.key} call={piece.call} thread={thread} textAbove={above?.text} />;
        }
        return <ToolCall key={piece.key} call={piece.call} replaced={open} />;
      })}
    </li>
  );
}

/** Only the last message changes while an answer streams, so the others are not rendered again. */
export const Message = memo(
  MessageView,
  (before, next) => before.message === next.message && before.last === next.last && !next.last && before.agent === next.agent,
);
