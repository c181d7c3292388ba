import type { ButtonHTMLAttributes, ReactElement, ReactNode, Ref } from "react";
import { Icon, type IconName } from "./Icon";

type ButtonProps = ButtonHTMLAttributes<HTMLButtonElement> & {
  /** `primary`: at most one per view. `danger`: cannot be undone. `ghost`: next to text. */
  tone?: "default" | "primary" | "danger" | "ghost";
  small?: boolean;
  icon?: IconName;
  /** The shortcut key: shown on the button and exposed to assistive technology. */
  shortcut?: string;
  children?: ReactNode;
  ref?: Ref<HTMLButtonElement>;
};

export function Button({
  tone = "default",
  small,
  icon,
  shortcut,
  children,
  className,
  ...rest
}: ButtonProps): ReactElement {
  const classes = ["button", `button-${tone}`, small ? "button-small" : "", className ?? ""].filter(Boolean).join(" ");
  return (
    <button type="button" aria-keyshortcuts={shortcut?.toLowerCase()} {...rest} className={classes}>
      {icon && <Icon name={icon} size={small ? 14 : 16} />}
      {children !== undefined && <span className="button-text">{children}</span>}
      {shortcut && <kbd aria-hidden="true">{shortcut}</kbd>}
    </button>
  );
}

/** A button with only an icon. `label` is its accessible name and tooltip. */
export function IconButton({
  label,
  icon,
  className,
  ...rest
}: Omit<ButtonProps, "children" | "icon"> & { label: string; icon: IconName }): ReactElement {
  return (
    <button type="button" aria-label={label} title={label} {...rest} className={`icon-button ${className ?? ""}`}>
      <Icon name={icon} />
    </button>
  );
}
