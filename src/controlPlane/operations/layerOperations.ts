import { Layer } from "effect"
import { OperationLeader } from "./OperationLeader.ts"
import { OperationRunners } from "./OperationRunners.ts"
import { Operations } from "./Operations.ts"

/** Operations with the work of the leader. `runners` registers the runners of the kinds, before the leader begins. */
export const layerOperationsWith = <E, R>(runners: Layer.Layer<never, E, R>) =>
  Layer.mergeAll(Operations.layer, OperationLeader).pipe(
    Layer.provide(runners),
    Layer.provideMerge(OperationRunners.layer)
  )
