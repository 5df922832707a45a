import type { ServerId } from "../../domain/Id.ts"
import type { ServerRecord } from "../../domain/Server.ts"

/** The place of a server in lists. */
export type Place = Pick<ServerRecord, "id" | "created_at">

/** Neighbours in the order. A change of the order replaces the chunk and leaves the others. */
export type Chunk = ReadonlyArray<ServerId>

/** Mean number of servers of a chunk. */
const CHUNK = 128

/** Decides by the id alone, so that equal orders have equal chunks on every replica. */
const isChunkEnd = (id: string): boolean => {
  let hash = 0
  for (let at = 0; at < id.length; at++) hash = (Math.imul(hash, 31) + id.charCodeAt(at)) | 0
  return hash % CHUNK === 0
}

const isBefore = (one: Place, other: Place): boolean =>
  one.created_at < other.created_at || (one.created_at === other.created_at && one.id < other.id)

/** Returns the first index, up to `size`, that is not before the place. */
const search = (size: number, isBefore: (at: number) => boolean): number => {
  let [low, high] = [0, size]
  while (low < high) {
    const middle = (low + high) >> 1
    if (isBefore(middle)) low = middle + 1
    else high = middle
  }
  return low
}

/** Ids of servers by creation, then id. */
export class ServerOrder {
  readonly #createdAt: (id: ServerId) => string
  readonly #isChunkEnd: (id: string) => boolean
  readonly #chunks: Array<Chunk> = []
  #ids: ReadonlyArray<ServerId> | undefined

  /**
   * @param createdAt time of the creation of a server that is there
   * @param endsChunk whether a chunk ends with the server of an id
   */
  constructor(createdAt: (id: ServerId) => string, endsChunk: (id: string) => boolean = isChunkEnd) {
    this.#createdAt = createdAt
    this.#isChunkEnd = endsChunk
  }

  get chunks(): ReadonlyArray<Chunk> {
    return this.#chunks
  }

  get ids(): ReadonlyArray<ServerId> {
    this.#ids ??= this.#chunks.flat()
    return this.#ids
  }

  /** Adds a server that is not there. */
  add(place: Place): void {
    const at = this.#indexOf(place)
    const chunk = this.#chunks[at] ?? []
    const position = this.#positionIn(chunk, place)
    const [before, after] = [[...chunk.slice(0, position), place.id], chunk.slice(position)]
    this.#replace(at, 1, this.#isChunkEnd(place.id) ? [before, after] : [[...before, ...after]])
  }

  /** Adds servers that are not there; many at once to an empty order. */
  addAll(places: ReadonlyArray<Place>): void {
    if (this.#chunks.length > 0) {
      for (const place of places) this.add(place)
      return
    }
    let chunk: Array<ServerId> = []
    for (const { id } of places.toSorted((one, other) => (isBefore(one, other) ? -1 : 1))) {
      if (chunk.push(id) === 1) this.#chunks.push(chunk)
      if (this.#isChunkEnd(id)) chunk = []
    }
    this.#ids = undefined
  }

  remove(place: Place): void {
    const at = this.#indexOf(place)
    const kept = (this.#chunks[at] ?? []).filter((id) => id !== place.id)
    if (this.#isChunkEnd(place.id)) this.#replace(at, 2, [[...kept, ...(this.#chunks[at + 1] ?? [])]])
    else this.#replace(at, 1, [kept])
  }

  /** Returns the chunk that has a server. */
  chunkOf(place: Place): Chunk | undefined {
    return this.#chunks[this.#indexOf(place)]
  }

  has(chunk: Chunk): boolean {
    return this.#chunks.includes(chunk)
  }

  /** Returns the next servers after a place, whose server need not be there; none: the place is the last one. */
  after(place: Place): Chunk {
    const at = this.#indexOf(place)
    const chunk = this.#chunks[at] ?? []
    const position = this.#positionIn(chunk, place)
    const rest = chunk.slice(chunk[position] === place.id ? position + 1 : position)
    return rest.length > 0 ? rest : (this.#chunks[at + 1] ?? [])
  }

  #replace(at: number, count: number, chunks: ReadonlyArray<Chunk>): void {
    this.#chunks.splice(at, count, ...chunks.filter(({ length }) => length > 0))
    this.#ids = undefined
  }

  #isBefore(id: ServerId, place: Place): boolean {
    return isBefore({ id, created_at: this.#createdAt(id) }, place)
  }

  #positionIn(chunk: Chunk, place: Place): number {
    return search(chunk.length, (at) => {
      const id = chunk[at]
      return id !== undefined && this.#isBefore(id, place)
    })
  }

  /** Returns the index of the chunk that has a server, or would have it. */
  #indexOf(place: Place): number {
    const at = search(this.#chunks.length, (chunk) => {
      const last = this.#chunks[chunk]?.at(-1)
      return last !== undefined && this.#isBefore(last, place)
    })
    const last = this.#chunks.at(-1)?.at(-1)
    const isOpen = last !== undefined && !this.#isChunkEnd(last)
    return at === this.#chunks.length && isOpen ? at - 1 : at
  }
}
