/** Signs of the chart's buttons: strokes in the colour of the text. */
export function PinIcon() {
  return (
    <svg viewBox="0 0 16 16" aria-hidden="true">
      <path class="fills" d="M6 2h4l-.5 5 2.5 2.5H4L6.5 7z" />
      <path d="M8 9.5V14" />
    </svg>
  );
}

export function FullScreenIcon() {
  return (
    <svg viewBox="0 0 16 16" aria-hidden="true">
      <path d="M9.5 2.5h4v4M6.5 13.5h-4v-4M13.5 2.5 9.5 6.5M2.5 13.5l4-4" />
    </svg>
  );
}

export function MoreIcon() {
  return (
    <svg viewBox="0 0 16 16" aria-hidden="true">
      <path d="M3 8h.01M8 8h.01M13 8h.01" stroke-width="2.4" />
    </svg>
  );
}

export function GripIcon() {
  return (
    <svg viewBox="0 0 16 16" aria-hidden="true">
      <path d="M6 4h.01M10 4h.01M6 8h.01M10 8h.01M6 12h.01M10 12h.01" stroke-width="2" />
    </svg>
  );
}
