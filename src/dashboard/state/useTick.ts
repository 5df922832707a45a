import { useEffect, useState } from "preact/hooks"
import { whileVisible } from "./whileVisible.ts"

/** A number that grows every so many milliseconds while the page is visible, and a function that makes it grow now. */
export const useTick = (every: number): readonly [number, () => void] => {
  const [tick, setTick] = useState(0)
  const grow = () => setTick((before) => before + 1)
  useEffect(() => whileVisible(every, async () => grow()), [every])
  return [tick, grow]
}
