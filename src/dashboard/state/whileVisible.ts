import { useEffect, useState } from "preact/hooks"

/** Runs work every so many milliseconds while the page is visible, and once when it becomes visible again. */
export const whileVisible = (every: number, work: () => Promise<void>): (() => void) => {
  let timer: ReturnType<typeof setTimeout> | undefined
  let isRunning = false
  let isEnded = false
  const run = async () => {
    if (isRunning || isEnded) return
    isRunning = true
    clearTimeout(timer)
    if (!document.hidden) await work()
    isRunning = false
    if (!isEnded) timer = setTimeout(() => void run(), every)
  }
  const onVisible = () => {
    if (!document.hidden) void run()
  }
  document.addEventListener("visibilitychange", onVisible)
  timer = setTimeout(() => void run(), every)
  return () => {
    isEnded = true
    clearTimeout(timer)
    document.removeEventListener("visibilitychange", onVisible)
  }
}

/** A number that grows every so many milliseconds while the page is visible, and a function that makes it grow now. */
export const useTick = (every: number): readonly [number, () => void] => {
  const [tick, setTick] = useState(0)
  const grow = () => setTick((before) => before + 1)
  useEffect(() => whileVisible(every, async () => grow()), [every])
  return [tick, grow]
}
