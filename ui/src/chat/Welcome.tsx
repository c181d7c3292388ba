import type { ReactElement } from "react";
import { useMe } from "../shared/session";
import type { Agent } from "../shared/types";

const EXAMPLES: [string, string][] = [
  ["What is the weather in Lisbon?", "one call that needs approval"],
  ["Deploy v2.1 to production", "needs approval; staging does not"],
  ["Delete old records", "approve or reject, no editing"],
  ["Order a pizza", "questions until the order is complete"],
  ["Ask me a question", "options, or your own words"],
  ["Do two things", "two calls, each with its own decision"],
  ["Send an email to 150 people", "needs approval above 100 recipients"],
  ["Book a flight to Paris for Friday", "edit it before you approve"],
  ["What time is it in Oslo?", "needs no approval"],
  ["Start a coding agent", "its requests appear in the inbox"],
  ["Slow weather, please", "an answer that takes five seconds"],
];

/** An empty chat: the tools that need approval or, in the demo, examples to try. */
export function Welcome({ agent, onPick }: { agent: Agent | undefined; onPick: (text: string) => void }): ReactElement {
  const { demo } = useMe();
  const asks = agent?.tools.filter((tool) => tool.needs_approval !== "never") ?? [];
  return (
    <div className="welcome">
      <h1>{demo ? "Try the demo agent" : agent ? `Chat with ${agent.name}` : "Start a conversation"}</h1>
      <p className="muted">
        This agent asks before it acts. Decide its requests here, in the inbox or in a terminal.
      </p>
      {demo ? (
        <ul className="chips" aria-label="Examples">
          {EXAMPLES.map(([text, shows]) => (
            <li key={text}>
              <button type="button" className="chip" onClick={() => onPick(text)}>
                <span className="chip-text">{text}</span>
                <span className="chip-note">{shows}</span>
              </button>
            </li>
          ))}
        </ul>
      ) : (
        asks.length > 0 && (
          <div className="welcome-tools">
            <h2>Needs your approval</h2>
            <ul>
              {asks.map((tool) => (
                <li key={tool.name}>
                  <code>{tool.name}</code>
                  <span className="muted">{tool.needs_approval === "sometimes" ? "sometimes" : "always"}</span>
                </li>
              ))}
            </ul>
          </div>
        )
      )}
    </div>
  );
}
