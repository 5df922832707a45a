import { key as sessionKey } from "../api/http.ts"
import { Dialog, openDialog } from "../parts/Dialog.tsx"
import { listAddress } from "../state/filter.ts"
import { addressOf, go, route } from "../state/router.ts"

const listed: ReadonlyArray<readonly [ReadonlyArray<string>, string]> = [
  [["/"], "Search servers"],
  [["↑", "↓"], "Move in the list"],
  [["Enter"], "Open the server"],
  [["Space"], "Select the server; with Shift, all up to it"],
  [["Esc"], "Clear the selection, leave a field, go back to the list"],
  [["N"], "Create a server"],
  [["G", "S"], "Show servers"],
  [["G", "N"], "Show nodes"],
  [["G", "R"], "Show rollouts"],
  [["G", "C"], "Show schedules"],
  [["G", "B"], "Show backups"],
  [["G", "E"], "Show events"],
  [["G", "K"], "Show keys"],
  [["G", "W"], "Show webhooks"],
  [["?"], "Show these shortcuts"]
]

export const showShortcuts = (): void =>
  openDialog(
    <Dialog title="Keyboard shortcuts">
      <dl class="shortcuts">
        {listed.map(([keys, meaning]) => (
          <div>
            <dt>
              {keys.map((key) => (
                <kbd>{key}</kbd>
              ))}
            </dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  )

const isTyping = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement &&
  (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName))

const places: Readonly<Record<string, () => string>> = {
  s: listAddress,
  n: () => addressOf.nodes,
  r: () => addressOf.rollouts,
  c: () => addressOf.schedules(),
  b: () => addressOf.backups,
  e: () => addressOf.events(),
  k: () => addressOf.keys,
  w: () => addressOf.webhooks
}

let isAfterG = false

const onKeyDown = (event: KeyboardEvent): void => {
  if (sessionKey.value === undefined || event.ctrlKey || event.metaKey || event.altKey) return
  if (document.querySelector("dialog[open]") !== null) return
  if (isTyping(event.target)) return
  // Caps Lock and Shift change letters only.
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key
  const place = isAfterG ? places[key] : undefined
  isAfterG = key === "g"
  if (place !== undefined) go(place())
  else if (key === "/") {
    if (route.value.page !== "servers") go(listAddress())
    // After the rendering, which is a microtask too, and before the next key.
    queueMicrotask(() => document.getElementById("search")?.focus())
  } else if (key === "n") go(addressOf.new)
  else if (key === "?") showShortcuts()
  else if (key === "Escape" && route.value.page !== "servers") go(listAddress())
  else return
  event.preventDefault()
}

export const listenToKeys = (): void => document.addEventListener("keydown", onKeyDown)
