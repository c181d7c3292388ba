/** The arguments of a call: as typed fields, as JSON, and as plain lines. */

import { useState, type ReactElement } from "react";
import { CopyButton } from "../components/CopyButton";
import { Tabs } from "../components/Tabs";
import type { Json, JsonObject, Request } from "../types";
import { CodingCallView } from "./CodingCallView";
import { codingCall, type CodingCall } from "./codingCall";
import { decisive, inWords, shapeOf } from "./inWords";
import { EndMark, LongValue } from "./LongValue";
import { PlanView } from "./PlanView";
import { ShapedText } from "./Shaped";
import type { Seen } from "./useSeen";
import { ALL_ARGS, lineCount, longParts, typeName } from "./values";
import { ValueView } from "./ValueView";

type View = "plan" | "call" | "fields" | "json" | "raw";

function FieldRow(props: { name: string; value: Json; args: JsonObject; long: boolean; seen: Seen }): ReactElement {
  const { name, value, long, seen } = props;
  const shaped = typeof value === "string" && shapeOf(name, value) !== "text";
  const words = inWords(name, value, props.args);
  const body = (
    <>
      {shaped ? <ShapedText name={name} text={value} /> : <ValueView value={value} />}
      {words && <span className="in-words">{words}</span>}
    </>
  );
  return (
    <tr data-testid={`arg-${name}`}>
      <th scope="row" className="mono">
        {name}
        <span className="field-type">{typeName(value)}</span>
      </th>
      <td>
        {long ? (
          <LongValue name={name} lines={lineCount(value)} onSeen={() => seen.see(name)}>
            {body}
          </LongValue>
        ) : (
          body
        )}
      </td>
    </tr>
  );
}

function Fields({ args, seen }: { args: Json; seen: Seen }): ReactElement {
  const long = longParts(args);
  if (args === null || typeof args !== "object" || Array.isArray(args)) return <ValueView value={args} />;
  const entries = Object.entries(args);
  if (entries.length === 0) return <p className="muted args-none">No arguments.</p>;
  const table = (
    <table className="args-table">
      <colgroup>
        <col className="args-names" />
        <col />
      </colgroup>
      <thead className="sr-only">
        <tr>
          <th scope="col">Field</th>
          <th scope="col">Value</th>
        </tr>
      </thead>
      <tbody>
        {entries.map(([name, value]) => (
          <FieldRow key={name} name={name} value={value} args={args} long={long.includes(name)} seen={seen} />
        ))}
      </tbody>
    </table>
  );
  if (!long.includes(ALL_ARGS)) return table;
  return (
    <LongValue name={ALL_ARGS} lines={lineCount(args)} onSeen={() => seen.see(ALL_ARGS)}>
      {table}
    </LongValue>
  );
}

/** All arguments as one text. Scrolling to its end counts as having seen all of them. */
function Whole({ text, seen }: { text: string; seen: Seen }): ReactElement {
  return (
    <>
      <pre className="args-pre wrap">{text}</pre>
      {seen.unseen.length > 0 && <EndMark name="the text" onSeen={seen.seeAll} />}
    </>
  );
}

/** The call of a coding agent, with its remaining arguments below. */
function Call({ call, seen }: { call: CodingCall; seen: Seen }): ReactElement {
  const shown = seen.unseen.filter((name) => !(name in call.rest));
  return (
    <>
      <CodingCallView call={call} />
      {shown.length > 0 && <EndMark name="the call" onSeen={() => shown.forEach(seen.see)} />}
      {Object.keys(call.rest).length > 0 && <Fields args={call.rest} seen={seen} />}
    </>
  );
}

export function ArgsView({ request, seen }: { request: Request; seen: Seen }): ReactElement {
  const { args, lines } = request.shown;
  // With too many arguments, all of them count as one long part, which this view cannot show.
  const call = longParts(args).includes(ALL_ARGS) ? null : codingCall(request.tool, args);
  const [view, setView] = useState<View>(request.plan ? "plan" : call ? "call" : "fields");
  const json = JSON.stringify(args, null, 2);
  const headline = decisive(args);
  return (
    <>
    {headline && <p className="decisive wrap">{headline}</p>}
    <div className="args">
      <Tabs<View>
        label="View"
        current={view}
        onChange={setView}
        tabs={[
          ...(request.plan ? [{ key: "plan" as const, label: "Steps" }] : []),
          ...(call ? [{ key: "call" as const, label: "Call" }] : []),
          { key: "fields", label: "Fields" },
          { key: "json", label: "JSON" },
          { key: "raw", label: "Raw" },
        ]}
      >
        <div className="args-panel">
          {view === "plan" && <PlanView request={request} seen={seen} />}
          {view === "call" && call && <Call call={call} seen={seen} />}
          {view === "fields" && <Fields args={args} seen={seen} />}
          {view === "json" && <Whole text={json} seen={seen} />}
          {view === "raw" && <Whole text={lines.join("\n")} seen={seen} />}
        </div>
      </Tabs>
      <div className="args-copy">
        <CopyButton text={json} label="Copy arguments as JSON" />
      </div>
    </div>
    </>
  );
}
