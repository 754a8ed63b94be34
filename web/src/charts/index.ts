/** Charts for pages: a line chart, the same as a card, and how they look at their series. */

export { ChartCard, type ChartCardProps } from "./card";
export { Chart, type ChartProps } from "./chart";
export { highlighted } from "./cursor";
export { boardView, type ChartView, ownView, setAxis } from "./view";
export { Zoomed } from "./zoomed";
