/** A form made from JSON Schema; what it cannot say is a box of JSON. */

import { useEffect, useId, useState, type ReactElement, type ReactNode } from "react";
import { Button, IconButton } from "../components/Button";
import type { Json, JsonObject, Schema } from "../types";
import { hiddenIn, visible } from "../visible";
import { blank, fieldOf, isMultiline, isWithin, readJson, readNumber, type Field } from "./schema";
import { Unseen } from "./Unseen";

export type Problem = { field: string; message: string };

interface NodeProps {
  name: string;
  /** `to[0].name`: how the server names this field in its complaints. */
  path: string;
  schema: Schema;
  root: Schema;
  value: Json | undefined;
  required: boolean;
  problems: Problem[];
  depth: number;
  onChange: (value: Json | undefined) => void;
  onBad: (path: string, bad: boolean) => void;
}

interface Labelled {
  id: string;
  "aria-invalid"?: true;
  "aria-describedby"?: string;
}

function Frame({
  node,
  field,
  children,
}: {
  node: NodeProps;
  field: Field;
  children: (props: Labelled) => ReactNode;
}): ReactElement {
  const id = useId();
  const own = node.problems.filter((problem) => problem.field === node.path);
  const hint = field.schema.description ?? node.schema.description;
  const text = typeof node.value === "string" ? node.value : (JSON.stringify(node.value, null, 2) ?? "");
  const described = [
    hint && `${id}-hint`,
    hiddenIn(text).length > 0 && `${id}-unseen`,
    own.length > 0 && `${id}-error`,
  ]
    .filter(Boolean)
    .join(" ");
  return (
    <div className="field">
      <label className="field-label" htmlFor={id}>
        <span className="mono">{visible(node.name)}</span>
        {!node.required && <span className="muted"> optional</span>}
      </label>
      {children({ id, "aria-invalid": own.length > 0 ? true : undefined, "aria-describedby": described || undefined })}
      {hint && (
        <span className="field-hint" id={`${id}-hint`}>
          {visible(hint)}
        </span>
      )}
      <Unseen id={`${id}-unseen`} text={text} />
      <Problems id={`${id}-error`} problems={own} />
    </div>
  );
}

function Problems({ id, problems }: { id?: string; problems: Problem[] }): ReactElement | null {
  if (problems.length === 0) return null;
  return (
    <span className="field-error" id={id}>
      {problems.map((problem) => problem.message).join(" ")}
    </span>
  );
}

/** A text that becomes a value when it can be read; until then the form knows that it is bad. */
function ReadField(props: {
  node: NodeProps;
  labelled: Labelled;
  first: string;
  read: (text: string) => { value?: Json; error?: string };
  same: (value: Json | undefined) => boolean;
  json?: boolean;
}): ReactElement {
  const { node, read } = props;
  const [text, setText] = useState(props.first);
  const [error, setError] = useState("");
  useEffect(() => {
    const current = read(text);
    if (current.error === undefined && props.same(current.value)) return;
    if (current.error === undefined) setText(props.first);
  }, [props.first]);
  useEffect(() => () => node.onBad(node.path, false), []);
  const change = (next: string) => {
    setText(next);
    const result = read(next);
    setError(result.error ?? "");
    node.onBad(node.path, result.error !== undefined);
    if (result.error === undefined) node.onChange(result.value);
  };
  const Tag = props.json ? "textarea" : "input";
  return (
    <>
      <Tag
        {...props.labelled}
        className="mono"
        inputMode={props.json ? undefined : "decimal"}
        spellCheck={false}
        rows={props.json ? Math.min(12, text.split("\n").length + 1) : undefined}
        aria-invalid={error ? true : props.labelled["aria-invalid"]}
        value={text}
        onChange={(event) => change(event.target.value)}
      />
      {error && <span className="field-error">{error}</span>}
    </>
  );
}

function Leaf({ node, field }: { node: NodeProps; field: Field }): ReactElement {
  const { widget, schema } = field;
  const { value, onChange } = node;
  if (widget.kind === "boolean") {
    return (
      <div className="field">
        <label className="check">
          <input type="checkbox" checked={value === true} onChange={(event) => onChange(event.target.checked)} />
          <span className="mono">{visible(node.name)}</span>
        </label>
        {schema.description && <span className="field-hint">{visible(schema.description)}</span>}
        <Problems problems={node.problems.filter((problem) => problem.field === node.path)} />
      </div>
    );
  }
  return (
    <Frame node={node} field={field}>
      {(labelled) => {
        switch (widget.kind) {
          case "enum":
            return (
              <select
                {...labelled}
                value={widget.values.findIndex((each) => JSON.stringify(each) === JSON.stringify(value))}
                onChange={(event) => onChange(widget.values[Number(event.target.value)])}
              >
                <option value={-1} disabled hidden>
                  Choose
                </option>
                {widget.values.map((each, index) => (
                  <option key={index} value={index}>
                    {visible(typeof each === "string" ? each : JSON.stringify(each))}
                  </option>
                ))}
              </select>
            );
          case "number":
          case "integer": {
            const read = (text: string) => readNumber(text, widget.kind === "integer");
            const first = typeof value === "number" ? String(value) : "";
            return (
              <ReadField node={node} labelled={labelled} first={first} read={read} same={(next) => next === value} />
            );
          }
          case "text":
            return <TextField labelled={labelled} schema={schema} value={value} onChange={onChange} />;
          default: {
            const first = value === undefined ? "" : JSON.stringify(value, null, 2);
            const same = (next: Json | undefined) => JSON.stringify(next) === JSON.stringify(value);
            return <ReadField json node={node} labelled={labelled} first={first} read={readJson} same={same} />;
          }
        }
      }}
    </Frame>
  );
}

const INPUT_TYPES: Record<string, string> = { date: "date", time: "time", email: "email", uri: "url" };

function TextField(props: {
  labelled: Labelled;
  schema: Schema;
  value: Json | undefined;
  onChange: (value: string) => void;
}): ReactElement {
  const { value, schema } = props;
  const text = typeof value === "string" ? value : "";
  // The kind of box is fixed at first sight: it must not change under the hands of somebody who types.
  const [multiline] = useState(() => isMultiline(schema, value));
  if (multiline) {
    const rows = Math.min(18, text.split("\n").length + 2);
    return (
      <textarea {...props.labelled} rows={rows} value={text} onChange={(event) => props.onChange(event.target.value)} />
    );
  }
  const type = INPUT_TYPES[schema.format ?? ""] ?? "text";
  return (
    <input {...props.labelled} type={type} value={text} onChange={(event) => props.onChange(event.target.value)} />
  );
}

function ObjectNode({ node, field, bare }: { node: NodeProps; field: Field; bare?: boolean }): ReactElement {
  if (field.widget.kind !== "object") throw new Error("not an object");
  const { fields, required } = field.widget;
  const value = (node.value ?? {}) as JsonObject;
  const body = fields.map(([name, schema]) => (
    <FormNode
      key={name}
      {...node}
      name={name}
      path={node.path ? `${node.path}.${name}` : name}
      schema={schema}
      value={value[name]}
      required={required.has(name)}
      depth={node.depth + 1}
      onChange={(next) => {
        const { [name]: _, ...rest } = value;
        if (next === undefined) node.onChange(rest);
        // Keys keep their places, so that the JSON tab reads like the form.
        else
          node.onChange(
            Object.fromEntries([...Object.keys(value), name].map((key) => [key, key === name ? next : value[key]!])),
          );
      }}
    />
  ));
  if (bare) return <div className="form">{body}</div>;
  return (
    <fieldset className="group">
      <legend className="mono">{visible(node.name)}</legend>
      {body}
      <Problems problems={node.problems.filter((problem) => problem.field === node.path)} />
    </fieldset>
  );
}

function ArrayNode({ node, field }: { node: NodeProps; field: Field }): ReactElement {
  if (field.widget.kind !== "array") throw new Error("not a list");
  const { items } = field.widget;
  const value = Array.isArray(node.value) ? node.value : [];
  return (
    <fieldset className="group">
      <legend className="mono">
        {visible(node.name)} <span className="muted">list of {value.length}</span>
      </legend>
      {value.map((item, index) => (
        <div className="array-row" key={`${index}/${value.length}`}>
          <FormNode
            {...node}
            name={`${node.name} ${index + 1}`}
            path={`${node.path}[${index}]`}
            schema={items}
            value={item}
            required
            depth={node.depth + 1}
            onChange={(next) => node.onChange(value.map((each, at) => (at === index ? (next ?? null) : each)))}
          />
          <IconButton
            label={`Remove ${visible(node.name)} ${index + 1}`}
            icon="trash"
            onClick={() => node.onChange(value.filter((_, at) => at !== index))}
          />
        </div>
      ))}
      <Problems problems={node.problems.filter((problem) => problem.field === node.path)} />
      <Button small icon="plus" onClick={() => node.onChange([...value, blank(items, node.root)])}>
        Add to {visible(node.name)}
      </Button>
    </fieldset>
  );
}

/** What may be null or left out has a box that says so; the field is there when it has a value. */
function Absent({ node, field }: { node: NodeProps; field: Field }): ReactElement {
  const word = node.value === null ? "null" : "left out";
  const none: Json | undefined = field.nullable ? null : undefined;
  const has = node.value !== none && node.value !== undefined && node.value !== null;
  const start = () => node.onChange(blank({ ...field.schema, default: undefined }, node.root));
  return (
    <div className="absent">
      <label className="check">
        <input
          type="checkbox"
          checked={has}
          onChange={(event) => (event.target.checked ? start() : node.onChange(none))}
        />
        <span>
          Give <span className="mono">{visible(node.name)}</span> a value
          {!has && <span className="muted"> (now {word})</span>}
        </span>
      </label>
    </div>
  );
}

function FormNode(node: NodeProps): ReactElement {
  const field = fieldOf(node.schema, node.root, node.value, node.depth);
  const optional = field.nullable || (!node.required && node.value === undefined);
  if (optional) {
    const empty = node.value === null || node.value === undefined;
    return (
      <div className="optional">
        <Absent node={node} field={field} />
        {!empty && <Inner node={node} field={field} />}
        {empty && <Problems problems={node.problems.filter((problem) => isWithin(problem.field, node.path))} />}
      </div>
    );
  }
  return <Inner node={node} field={field} />;
}

function Inner({ node, field }: { node: NodeProps; field: Field }): ReactElement {
  if (field.widget.kind === "object") return <ObjectNode node={node} field={field} />;
  if (field.widget.kind === "array") return <ArrayNode node={node} field={field} />;
  return <Leaf node={node} field={field} />;
}

interface Props {
  schema: Schema;
  value: Json;
  problems: Problem[];
  onChange: (value: Json) => void;
  onBad: (path: string, bad: boolean) => void;
}

/** The whole form; the fields of an object stand without a frame around them. */
export function SchemaForm({ schema, value, problems, onChange, onBad }: Props): ReactElement {
  const node: NodeProps = {
    name: schema.title ?? "value",
    path: "",
    schema,
    root: schema,
    value,
    required: true,
    problems,
    depth: 0,
    onChange: (next) => onChange(next ?? null),
    onBad,
  };
  const field = fieldOf(schema, schema, value);
  if (field.widget.kind === "object") return <ObjectNode node={node} field={field} bare />;
  return <Inner node={node} field={field} />;
}
