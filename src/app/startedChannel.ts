/** The channel of `node:diagnostics_channel` between the entry point and the bundle, which share no module. */
export const STARTED = "muster.started"
