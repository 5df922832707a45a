import { useState } from "preact/hooks"
import { useGet, useTick } from "../../api/http.ts"
import { whyNot } from "../../api/session.ts"
import type { Rollout } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import { action, drawReply, empty, pageHead } from "../../parts/parts.tsx"
import { showNewRollout } from "./newRollout.tsx"
import { isUnfinished, RolloutCard } from "./RolloutCard.tsx"

/** Milliseconds between two readings, while a rollout is under way and otherwise. */
const BUSY = 1500
const IDLE = 10_000
const PAGE = 20
const MOST = 100

const start = () =>
  action({
    text: "New rollout",
    icon: "plus",
    class: "primary",
    whyNot: whyNot("change"),
    onClick: () => showNewRollout()
  })

/** The rollouts, newest first; those under way are followed. */
export const RolloutsPage = (): View => {
  const [limit, setLimit] = useState(PAGE)
  const [isBusy, setBusy] = useState(true)
  const [tick, again] = useTick(isBusy ? BUSY : IDLE)
  const reply = useGet<ReadonlyArray<Rollout>>(`/api/rollouts?limit=${limit}`, tick)
  const all = reply?.ok === true ? reply.body : []
  const hasUnfinished = all.some(isUnfinished)
  if (reply !== undefined && isBusy !== hasUnfinished) setBusy(hasUnfinished)
  return (
    <div>
      {pageHead(
        "Rollouts",
        "Today’s definitions for many servers, a few at a time",
        <span class="grow" />,
        all.length > 0 && start()
      )}
      {drawReply(reply, "Loading the rollouts", () =>
        all.length === 0 ? (
          empty(
            "layers",
            "No rollout yet",
            "After a blueprint has changed, a rollout gives the change to its servers. The difference is shown before.",
            start()
          )
        ) : (
          <div class="rollouts">
            {all.map((rollout) => (
              <RolloutCard key={rollout.id} rollout={rollout} now={Date.now()} onChanged={again} />
            ))}
          </div>
        )
      )}
      {all.length >= limit && limit < MOST && action({ text: "Show more", onClick: () => setLimit(MOST) })}
    </div>
  )
}
