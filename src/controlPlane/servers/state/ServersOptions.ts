import { Context, type Duration } from "effect"

/** The bounds and times of the controllers, which tests change. */
export const ServersOptions = Context.Reference<{
  /** Provisioning calls to one node at a time. */
  readonly callsPerNode: number
  /** Delay before a call to a node is repeated, doubled up to `retryCap`. */
  readonly retryFrom: Duration.Input
  readonly retryCap: Duration.Input
  /** Servers that leave one drained node at a time. */
  readonly migrationsPerNode: number
  /** Between two attempts at a migration step whose condition does not hold yet. */
  readonly migrationPause: Duration.Input
  /** Between two looks at a server of a rollout, besides its changes. */
  readonly rolloutPause: Duration.Input
  /** Time for which a server of a rollout may wait for its node. */
  readonly rolloutNodeTimeout: Duration.Input
}>("muster/servers/ServersOptions", {
  defaultValue: () => ({
    callsPerNode: 64,
    retryFrom: "200 millis",
    retryCap: "30 seconds",
    migrationsPerNode: 2,
    migrationPause: "2 seconds",
    rolloutPause: "2 seconds",
    rolloutNodeTimeout: "5 minutes"
  })
})
