/** A form for a JSON Schema: react-jsonschema-form with our own fields and buttons. */

// Not from the package root, which also exports test helpers that need another validator.
import Form from "@rjsf/core/lib/components/Form.js";
import {
  ADDITIONAL_PROPERTY_FLAG,
  TranslatableString,
  canExpand,
  englishStringTranslator,
} from "@rjsf/utils";
import type {
  ArrayFieldItemTemplateProps,
  ArrayFieldTemplateProps,
  BaseInputTemplateProps,
  ErrorSchema,
  FieldProps,
  FieldTemplateProps,
  ObjectFieldTemplateProps,
  RJSFSchema,
  UiSchema,
  ValidatorType,
  WidgetProps,
} from "@rjsf/utils";
import { Validator } from "@cfworker/json-schema";
import { useMemo, useState, type ReactElement } from "react";
import { Button, IconButton } from "../components/Button";
import type { Json, JsonObject, Schema } from "../types";
import { findHiddenCharacters, visible } from "../visible";
import { columnsOf, isFormless, isMultiline, isUnnamed, readJson, simplifySchema, type Problem } from "./schema";
import { HiddenCharacters } from "./HiddenCharacters";

interface Props {
  schema: Schema;
  value: Json | undefined;
  problems: Problem[];
  disabled?: boolean;
  onChange: (value: Json) => void;
  /** Remove a field that is not required. Without it, fields can only be emptied. */
  onRemove?: (name: string) => void;
}

/** Only used to find which of several schemas a value matches. Interprets schemas, because the CSP forbids compiling them. */
const validator: ValidatorType = {
  isValid: (schema, value, root) =>
    value !== undefined && new Validator({ ...(schema as object), $defs: (root as Schema).$defs }, "2020-12").validate(value).valid,
  rawValidation: () => ({}),
  validateFormData: () => ({ errors: [], errorSchema: {} }),
};

/** Problems in the form library's format: a tree of `__errors`. */
function errorTree(problems: Problem[]): ErrorSchema {
  const tree: Record<string, unknown> = {};
  for (const { field, message } of problems) {
    let at = tree;
    for (const part of field.split(/[.[\]]+/).filter(Boolean)) at = (at[part] ??= {}) as Record<string, unknown>;
    at.__errors = [...((at.__errors as string[] | undefined) ?? []), message];
  }
  return tree as ErrorSchema;
}

/** Longer lists are edited in a table. */
const LONG_LIST = 12;
/** Rows of a table that are shown before a search. */
const ROWS = 50;

/** What the library cannot render by itself: parts without a form are JSON, and long lists are tables. */
function fieldsOf(schema: Schema, value: Json | undefined): UiSchema {
  if (isFormless(schema)) return { "ui:field": JsonField };
  const ui: Record<string, unknown> = {};
  if (Array.isArray(value)) {
    if (value.length > LONG_LIST && columnsOf(schema)) return { "ui:field": ListTable };
    ui.items = fieldsOf(schema.items ?? {}, value[0]);
  }
  const object = value !== null && typeof value === "object" && !Array.isArray(value) ? value : {};
  for (const [name, part] of Object.entries(schema.properties ?? {})) ui[name] = fieldsOf(part, object[name]);
  // Fields are in the order of the arguments; those without a value come last.
  if (schema.properties) ui["ui:order"] = [...Object.keys(object).filter((name) => name in schema.properties!), "*"];
  return ui as UiSchema;
}

/** A part of the value as JSON, such as a list of different things. */
function JsonField({ formData, onChange, schema, name, title, fieldPathId, disabled }: FieldProps): ReactElement {
  const [text, setText] = useState(() => (formData === undefined ? "" : JSON.stringify(formData, null, 2)));
  const { error } = text.trim() ? readJson(text) : {};
  const id = fieldPathId.$id;
  return (
    <div className="field">
      <label className="field-label" htmlFor={id}>
        {visible(title || schema.title || name)} <span className="muted">JSON</span>
      </label>
      <textarea
        id={id}
        className="mono"
        spellCheck={false}
        rows={Math.min(14, text.split("\n").length + 1)}
        aria-invalid={error ? true : undefined}
        disabled={disabled}
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          const read = readJson(event.target.value);
          if (!read.error) onChange(read.value, fieldPathId.path);
        }}
      />
      {error && <span className="field-error">{error} The last valid value is kept.</span>}
      <HiddenCharacters id={`${id}-unseen`} text={text} />
    </div>
  );
}

/** A long list as a table: searched, pasted into, and complete whatever is shown. */
function ListTable({ formData, onChange, schema, name, title, fieldPathId, disabled }: FieldProps): ReactElement {
  const [search, setSearch] = useState("");
  const [all, setAll] = useState(false);
  const [lines, setLines] = useState("");
  const list = (formData ?? []) as Json[];
  const columns = columnsOf(schema as Schema)!;
  const label = visible(title || schema.title || name);
  const cell = (index: number, column: string) => {
    const row = list[index];
    return String((column ? (row as JsonObject | null)?.[column] : row) ?? "");
  };
  const wanted = search.trim().toLowerCase();
  // Searched again only for another search, or a row would leave as soon as it is edited.
  const found = useMemo(
    () => list.flatMap((row, index) => (!wanted || JSON.stringify(row).toLowerCase().includes(wanted) ? [index] : [])),
    [wanted, list.length],
  );
  const shown = all ? found : found.slice(0, ROWS);
  const change = (next: Json[]) => onChange(next, fieldPathId.path);
  const typed = (text: string, type: string): Json => (type !== "string" && text.trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : text);
  const set = (index: number, column: string, value: Json) =>
    change(list.map((row, at) => (at !== index ? row : column ? { ...(row as JsonObject), [column]: value } : value)));
  const add = (text: string) => {
    const rows = text.split(/\r?\n/).filter((line) => line.trim() !== "");
    const read = (line: string): Json => {
      if (!columns[0]!.name) return typed(line.trim(), columns[0]!.type);
      const parts = line.split(/\t/.test(line) ? "\t" : /;/.test(line) ? ";" : ",");
      return Object.fromEntries(columns.map((column, at) => [column.name, typed((parts[at] ?? "").trim(), column.type)]));
    };
    change([...list, ...rows.map(read)]);
    setLines("");
  };
  return (
    <fieldset className="form-box">
      <legend>{`${label} (${list.length})`}</legend>
      <input type="search" aria-label={`Search ${label}`} placeholder={`Search ${list.length} entries`} value={search} onChange={(event) => setSearch(event.target.value)} />
      <table className="list-table">
        {columns[0]!.name && (
          <thead>
            <tr>
              <th scope="col">#</th>
              {columns.map((column) => (
                <th scope="col" key={column.name}>
                  {visible(column.name)}
                </th>
              ))}
              <th />
            </tr>
          </thead>
        )}
        <tbody>
          {shown.map((index) => (
            <tr key={index}>
              <td className="muted">{index + 1}</td>
              {columns.map((column) => (
                <td key={column.name}>
                  <input
                    type="text"
                    aria-label={`${label} ${index + 1}${column.name && `, ${visible(column.name)}`}`}
                    disabled={disabled}
                    value={cell(index, column.name)}
                    onChange={(event) => set(index, column.name, typed(event.target.value, column.type))}
                  />
                  <HiddenCharacters text={cell(index, column.name)} />
                </td>
              ))}
              <td>
                <IconButton icon="cross" label={`Remove ${label} ${index + 1}`} disabled={disabled} onClick={() => change(list.filter((_, at) => at !== index))} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {found.length > shown.length && (
        <Button small onClick={() => setAll(true)}>
          {`Show all ${found.length}`}
        </Button>
      )}
      <textarea
        rows={2}
        aria-label={`Paste into ${label}`}
        placeholder={columns[0]!.name ? `Paste rows: ${columns.map((column) => column.name).join(", ")}` : "Paste values, one per line"}
        disabled={disabled}
        value={lines}
        onChange={({ target, nativeEvent }) => {
          const typing = target.value.length <= lines.length + 1 || (nativeEvent as InputEvent).inputType === "insertCompositionText";
          if (typing) setLines(target.value);
          else add(target.value);
        }}
      />
      {lines.trim() && (
        <Button small icon="plus" onClick={() => add(lines)}>
          {`Add to ${label}`}
        </Button>
      )}
    </fieldset>
  );
}

export default function SchemaForm({ schema, value, problems, disabled, onChange, onRemove }: Props): ReactElement {
  const simplified = useMemo(() => simplifySchema(schema), [schema]);
  // Fields keep their kind while they are edited.
  const fields = useMemo(() => fieldsOf(simplified, value), [simplified]);
  return (
    <Form
      tagName="div"
      className="schema-form"
      schema={simplified as RJSFSchema}
      uiSchema={{ ...fields, "ui:submitButtonOptions": { norender: true } }}
      formData={value}
      validator={validator}
      noValidate
      noHtml5Validate
      showErrorList={false}
      disabled={disabled}
      extraErrors={errorTree(problems)}
      experimental_defaultFormStateBehavior={{ emptyObjectFields: "skipDefaults", arrayMinItems: { populate: "never" } }}
      formContext={{ onRemove }}
      templates={TEMPLATES}
      widgets={WIDGETS}
      translateString={translate}
      onChange={({ formData }) => onChange(formData as Json)}
    />
  );
}

/** The library fills new map entries with "New Value"; start with an empty value instead. */
const translate: typeof englishStringTranslator = (text, params) =>
  text === TranslatableString.NewStringDefault ? "" : englishStringTranslator(text, params);

/** Edits the key of a map entry. */
function EntryName({ id, label, disabled, onKeyRename, onRemoveProperty }: FieldTemplateProps): ReactElement {
  const name = isUnnamed(label) ? "" : label;
  return (
    <div className="form-entry">
      <input
        key={name}
        type="text"
        id={`${id}-key`}
        aria-label={name ? `Name of ${visible(name)}` : "Name of the new entry"}
        placeholder="Name"
        autoComplete="off"
        autoFocus={!name}
        disabled={disabled}
        defaultValue={name}
        onBlur={({ target }) => target.value && onKeyRename(target.value)}
        onKeyDown={(event) => event.key === "Enter" && event.currentTarget.blur()}
      />
      <IconButton icon="cross" label={`Remove ${visible(name) || "the new entry"}`} disabled={disabled} onClick={onRemoveProperty} />
    </div>
  );
}

function FieldTemplate(props: FieldTemplateProps): ReactElement {
  const { id, label, required, rawErrors = [], rawDescription, children, displayLabel, schema, formData } = props;
  if (props.hidden) return <div hidden>{children}</div>;
  const boxed = schema.type === "object" || schema.type === "array";
  const entry = ADDITIONAL_PROPERTY_FLAG in schema;
  const text = typeof formData === "string" ? formData : "";
  const onRemove = (props.registry.formContext as Pick<Props, "onRemove">).onRemove;
  const removable = onRemove && props.fieldPathId.path.length === 1 && !required && !entry && formData !== undefined;
  return (
    <div className="field">
      {entry && <EntryName {...props} />}
      {displayLabel && !boxed && (
        <label className={entry ? "sr-only" : "field-label"} htmlFor={id}>
          {entry && isUnnamed(label) ? "Value of the new entry" : visible(label)}
          {!required && !entry && !schema.inferred && <span className="muted"> optional</span>}
        </label>
      )}
      {removable ? (
        <div className="form-item">
          <div>{children}</div>
          <IconButton icon="cross" label={`Remove ${visible(label)}`} disabled={props.disabled} onClick={() => onRemove(String(props.fieldPathId.path[0]))} />
        </div>
      ) : (
        children
      )}
      {rawDescription && !boxed && (
        <span className="field-hint" id={`${id}-hint`}>
          {visible(rawDescription)}
        </span>
      )}
      <HiddenCharacters id={`${id}-unseen`} text={text} />
      {rawErrors.length > 0 && (
        <span className="field-error" id={`${id}-error`}>
          {[...new Set(rawErrors)].join(" ")}
        </span>
      )}
    </div>
  );
}

function about(props: WidgetProps | BaseInputTemplateProps) {
  const { id, value, rawErrors = [], schema } = props;
  const parts = [
    schema.description && `${id}-hint`,
    typeof value === "string" && findHiddenCharacters(value).length > 0 && `${id}-unseen`,
    rawErrors.length > 0 && `${id}-error`,
  ].filter(Boolean);
  return {
    id,
    disabled: props.disabled,
    "aria-invalid": rawErrors.length > 0 ? (true as const) : undefined,
    "aria-describedby": parts.join(" ") || undefined,
  };
}

const INPUTS: Record<string, string> = { date: "date", time: "time", email: "email", password: "password" };

/** A time as the picker takes it, on the reader's clock. */
function localTime(text: string): string {
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return "";
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

function TextInput(props: BaseInputTemplateProps): ReactElement {
  const { value, schema, onChange } = props;
  const text = value === undefined || value === null ? "" : String(value);
  const number = [schema.type].flat().some((type) => type === "number" || type === "integer");
  const change = (next: string) => onChange(next === "" ? props.options.emptyValue : next);
  if (!number && isMultiline(schema as Schema, text)) {
    return (
      <textarea
        {...about(props)}
        rows={Math.min(14, text.split("\n").length + 1)}
        value={text}
        onChange={(event) => change(event.target.value)}
      />
    );
  }
  if (schema.format === "date-time" && (text === "" || localTime(text))) {
    return (
      <input
        {...about(props)}
        type="datetime-local"
        step={1}
        title={text}
        value={text && localTime(text)}
        onChange={({ target }) => change(target.value && new Date(target.value).toISOString())}
      />
    );
  }
  return (
    <input
      {...about(props)}
      type={number ? "text" : (INPUTS[schema.format ?? ""] ?? "text")}
      inputMode={number ? "decimal" : undefined}
      autoComplete="off"
      value={text}
      onChange={(event) => change(event.target.value)}
    />
  );
}

function Pick(props: WidgetProps): ReactElement {
  const options = props.options.enumOptions ?? [];
  const current = options.findIndex((option) => JSON.stringify(option.value) === JSON.stringify(props.value));
  return (
    <select
      {...about(props)}
      value={current < 0 ? "" : String(current)}
      onChange={(event) => props.onChange(event.target.value === "" ? undefined : options[Number(event.target.value)]!.value)}
    >
      <option value="">{props.required ? "Choose…" : "(not set)"}</option>
      {options.map((option, index) => (
        <option key={index} value={index}>
          {visible(String(option.label))}
        </option>
      ))}
    </select>
  );
}

function ObjectBox(props: ObjectFieldTemplateProps): ReactElement {
  const title = visible(props.title.replace(/-(\d+)$/, " $1"));
  const fields = (
    <>
      {props.properties.map((property) => property.content)}
      {canExpand(props.schema, props.uiSchema, props.formData) && (
        <Button small icon="plus" disabled={props.disabled} onClick={props.onAddProperty}>
          {`Add to ${title || "the fields"}`}
        </Button>
      )}
    </>
  );
  if (props.fieldPathId.path.length === 0) return fields;
  return (
    <fieldset className="form-box">
      <legend>{title}</legend>
      {props.description && <p className="field-hint">{props.description}</p>}
      {fields}
    </fieldset>
  );
}

function ListBox(props: ArrayFieldTemplateProps): ReactElement {
  return (
    <fieldset className="form-box">
      <legend>{visible(props.title)}</legend>
      {props.schema.description && <p className="field-hint">{visible(props.schema.description)}</p>}
      {props.items}
      {props.canAdd && (
        <Button small icon="plus" disabled={props.disabled} onClick={props.onAddClick}>
          {`Add to ${visible(props.title) || "the list"}`}
        </Button>
      )}
    </fieldset>
  );
}

function ListItem(props: ArrayFieldItemTemplateProps): ReactElement {
  const { buttonsProps: buttons, index } = props;
  return (
    <div className="form-item">
      <div>{props.children}</div>
      {buttons.hasRemove && (
        <IconButton icon="cross" label={`Remove item ${index + 1}`} disabled={props.disabled} onClick={buttons.onRemoveItem} />
      )}
    </div>
  );
}

const TEMPLATES = {
  FieldTemplate,
  ObjectFieldTemplate: ObjectBox,
  ArrayFieldTemplate: ListBox,
  ArrayFieldItemTemplate: ListItem,
  BaseInputTemplate: TextInput,
};
const WIDGETS = { SelectWidget: Pick, RadioWidget: Pick, CheckboxWidget: YesNo };

function YesNo(props: WidgetProps): ReactElement {
  return (
    <label className="check">
      <input
        {...about(props)}
        type="checkbox"
        checked={props.value === true}
        onChange={(event) => props.onChange(event.target.checked)}
      />
      {visible(props.label)}
    </label>
  );
}
