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
  FieldTemplateProps,
  ObjectFieldTemplateProps,
  RJSFSchema,
  UiSchema,
  ValidatorType,
  WidgetProps,
} from "@rjsf/utils";
import { Validator } from "@cfworker/json-schema";
import { useMemo, type ReactElement } from "react";
import { Button, IconButton } from "../components/Button";
import type { Json, Schema } from "../types";
import { findHiddenCharacters, visible } from "../visible";
import { simplifySchema, isMultiline, isUnnamed, type Problem } from "./schema";
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

/** Order the fields as in the arguments. Fields without a value come last. */
function inOrder(schema: Schema, value: Json | undefined): UiSchema {
  const ui: Record<string, unknown> = { "ui:submitButtonOptions": { norender: true } };
  if (schema.properties && value !== null && typeof value === "object" && !Array.isArray(value)) {
    const known = Object.keys(value).filter((name) => name in schema.properties!);
    ui["ui:order"] = [...known, "*"];
  }
  return ui as UiSchema;
}

export default function SchemaForm({ schema, value, problems, disabled, onChange, onRemove }: Props): ReactElement {
  const simplified = useMemo(() => simplifySchema(schema), [schema]);
  const order = useMemo(() => inOrder(simplified, value), [simplified]);
  return (
    <Form
      tagName="div"
      className="schema-form"
      schema={simplified as RJSFSchema}
      uiSchema={order}
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
          {!required && !entry && <span className="muted"> optional</span>}
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

const INPUTS: Record<string, string> = { date: "date", email: "email", password: "password" };

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
