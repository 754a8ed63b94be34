import type { ComponentChildren } from "preact";
import "./control.css";

export interface ButtonProps {
  children: ComponentChildren;
  onClick?(event: MouseEvent): void;
  kind?: "plain" | "main" | "danger";
  /** Read out, where the content is a sign. */
  label?: string;
  title?: string;
  disabled?: boolean;
  pressed?: boolean;
  submit?: boolean;
}

export function Button({ children, onClick, kind = "plain", label, title, disabled, pressed, submit }: ButtonProps) {
  return (
    <button
      type={submit ? "submit" : "button"}
      class={`button ${kind}`}
      aria-label={label}
      aria-pressed={pressed}
      title={title ?? label}
      disabled={disabled}
      onClick={(event) => onClick?.(event)}
    >
      {children}
    </button>
  );
}
