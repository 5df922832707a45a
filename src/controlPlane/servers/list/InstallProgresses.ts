import { Clock, Context, Effect, Layer } from "effect"
import type { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import { currentStep, type InstallState, type InstallStep } from "../../../contract/domain/InstallState.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import { LiveFeed } from "../../events/LiveFeed.ts"
import { followChanges } from "../../store/journal/Journal.ts"
import { ServerIndex } from "./ServerIndex.ts"

const stepOf = ({ phase, steps = [] }: InstallState): InstallStep | undefined =>
  phase === "installing" ? currentStep(steps) : undefined

/** The progress of running steps that nodes report to this replica, in memory until the installation changes. */
export class InstallProgresses extends Context.Service<InstallProgresses>()(
  "muster/servers/InstallProgresses",
  {
    make: Effect.gen(function* () {
      const index = yield* ServerIndex
      const live = yield* LiveFeed
      const known = new Map<ServerId, number>()

      yield* followChanges("read-model", (change) => {
        if (change.topic === "server:install" || change.topic === "deleted") known.delete(change.server_id)
      })

      return {
        /** Keeps and publishes a live report. A report about another step than the record's is late, and ignored. */
        reported: Effect.fnUntraced(function* (node_id: NodeId, id: ServerId, install: InstallState) {
          const record = index.get(id)
          const reported = stepOf(install)
          if (record?.node_id !== node_id || reported?.progress === undefined) return
          const step = stepOf(record.install)
          if (step?.name !== reported.name || step.started_at !== reported.started_at) return
          const { progress } = reported
          if (known.get(id) === progress) return
          known.set(id, progress)
          const at = yield* Clock.currentTimeMillis
          const payload = { phase: install.phase, step: step.name, progress }
          const { blueprint_id, labels } = record
          live.publish([{ topic: "install", server_id: id, blueprint_id, labels, at, payload }])
        }),
        /** The progress of the current step, 0 to 1, if it is known. */
        of: ({ id }: ServerRecord) => known.get(id)
      }
    })
  }
) {
  static readonly layer = Layer.effect(InstallProgresses, InstallProgresses.make)
}
