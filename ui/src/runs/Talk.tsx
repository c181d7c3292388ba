import type { ReactElement } from "react";
import type { Turn } from "../shared/types";
import { visible } from "../shared/visible";

const WHO: Record<string, string> = { user: "User", assistant: "Agent", tool: "Result", approval: "Decision", system: "Instructions" };

/** The messages of the thread, as the model sees them. */
export function Talk({ turns }: { turns: Turn[] }): ReactElement {
  if (turns.length === 0) return <p className="muted">No messages in this thread.</p>;
  return (
    <ol className="card run-talk" data-testid="conversation">
      {turns.map((turn) => (
        <li key={turn.seq} className="turn" data-role={turn.role} data-current={turn.current || undefined}>
          <p className="turn-who">
            {WHO[turn.role] ?? visible(turn.role)}
            {turn.name && <code> {visible(turn.name)}</code>}
          </p>
          <div className="turn-body">
            {turn.text && <p className={turn.role === "tool" ? "wrap mono" : "wrap"}>{visible(turn.text)}</p>}
            {turn.calls?.map((call) => (
              <p key={call.id} className="turn-call wrap">
                <code>
                  <strong>{visible(call.name)}</strong> {visible(typeof call.shown_args === "string" ? call.shown_args : JSON.stringify(call.shown_args))}
                </code>
              </p>
            ))}
          </div>
        </li>
      ))}
    </ol>
  );
}
