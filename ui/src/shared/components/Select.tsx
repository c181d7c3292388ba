import type { ReactElement } from "react";

interface SelectProps {
  label: string;
  /** The option for no filter. */
  all: string;
  value: string | null;
  options: { value: string; label: string }[];
  onChange: (value: string) => void;
}

/** A filter without a visible label. A value that is not among the options is shown too. */
export function Select({ label, all, value, options, onChange }: SelectProps): ReactElement {
  const known = !value || options.some((option) => option.value === value);
  return (
    <select
      aria-label={label}
      className="select"
      value={value ?? ""}
      data-set={value ? true : undefined}
      onChange={(event) => onChange(event.target.value)}
    >
      <option value="">{all}</option>
      {!known && <option value={value!}>{value}</option>}
      {options.map((option) => (
        <option key={option.value} value={option.value}>
          {option.label}
        </option>
      ))}
    </select>
  );
}
