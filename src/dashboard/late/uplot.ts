/** The plots, a file of their own: only the page of a server loads it. */
export { default as UPlot } from "uplot"
