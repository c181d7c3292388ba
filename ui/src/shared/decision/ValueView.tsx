/** A JSON value, complete: wrapped, never truncated, as text nodes only. */

import { useEffect, useRef, useState, type ReactElement } from "react";
import { thousands } from "../format";
import type { Json } from "../types";
import { columnsOf } from "./inWords";
import { isDeep } from "./values";

/** Without quotes, leading and trailing spaces and empty strings would be invisible. */
export function needsQuotes(text: string): boolean {
  return text === "" || text !== text.trim();
}

function Leaf({ value, quoted }: { value: Json; quoted: boolean }): ReactElement {
  if (typeof value === "string") {
    const marks = quoted || needsQuotes(value);
    return (
      <span className="value value-text">
        {marks && <span className="value-quote">“</span>}
        {value}
        {marks && <span className="value-quote">”</span>}
      </span>
    );
  }
  if (value === null) return <span className="value value-null">null</span>;
  return <span className={`value value-${typeof value}`}>{JSON.stringify(value)}</span>;
}

/** Lists with more scalar values than this get columns and a search field. */
const MANY = 20;

/** A long list of scalar values in columns. The search highlights matches and does not hide the rest. */
function ValueTable({ values }: { values: Json[] }): ReactElement {
  const [text, setText] = useState("");
  const list = useRef<HTMLOListElement>(null);
  const wanted = text.trim().toLowerCase();
  const hit = (value: Json) => wanted !== "" && String(value).toLowerCase().includes(wanted);
  const hits = values.filter(hit).length;
  useEffect(() => {
    list.current?.querySelector("[data-hit]")?.scrollIntoView({ block: "nearest" });
  }, [wanted]);
  return (
    <div className="value-table">
      <label className="value-search">
        <span className="sr-only">Search these {thousands(values.length)} values</span>
        <input
          type="search"
          placeholder={`Search ${thousands(values.length)} values`}
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
        <span className="muted small" role="status">
          {wanted && `${thousands(hits)} of ${thousands(values.length)} match`}
        </span>
      </label>
      <ol ref={list}>
        {values.map((value, index) => (
          <li key={index} data-hit={hit(value) || undefined}>
            <Leaf value={value} quoted={false} />
          </li>
        ))}
      </ol>
    </div>
  );
}

/** A list of equal flat objects, complete, as a table. */
function Rows({ rows, columns }: { rows: { [key: string]: Json }[]; columns: string[] }): ReactElement {
  return (
    <div className="scroll-x">
      <table className="value-rows">
        <thead>
          <tr>
            {columns.map((name) => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={index}>
              {columns.map((name) => (
                <td key={name}>
                  <Leaf value={row[name]!} quoted={typeof row[name] === "string" && /^(-?[\d.]+|true|false|null)$/.test(row[name])} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Branch({ value }: { value: Json[] | { [key: string]: Json } }): ReactElement {
  const entries: [string, Json][] = Array.isArray(value)
    ? value.map((item, index) => [String(index + 1), item])
    : Object.entries(value);
  if (entries.length === 0) {
    return <span className="value value-null">{Array.isArray(value) ? "empty list" : "empty object"}</span>;
  }
  if (Array.isArray(value) && value.length > MANY && value.every((item) => item === null || typeof item !== "object")) {
    return <ValueTable values={value} />;
  }
  const columns = columnsOf(value);
  if (columns) return <Rows rows={value as { [key: string]: Json }[]} columns={columns} />;
  return (
    <dl className={Array.isArray(value) ? "branch branch-list" : "branch"}>
      {entries.map(([name, item]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>
            <Part value={item} quoted={typeof item === "string"} />
          </dd>
        </div>
      ))}
    </dl>
  );
}

function Part({ value, quoted = false }: { value: Json; quoted?: boolean }): ReactElement {
  if (value !== null && typeof value === "object") return <Branch value={value} />;
  return <Leaf value={value} quoted={quoted} />;
}

export function ValueView({ value, quoted }: { value: Json; quoted?: boolean }): ReactElement {
  if (isDeep(value)) return <pre className="value wrap">{JSON.stringify(value, null, 2)}</pre>;
  return <Part value={value} quoted={quoted} />;
}
