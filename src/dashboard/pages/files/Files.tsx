import { useEffect, useRef, useState } from "preact/hooks"
import { caller } from "../../api/session.ts"
import type { View } from "../../dom/el.ts"
import { addressOf, follow } from "../../state/router.ts"
import { FileEditor } from "./FileEditor.tsx"
import { FileSearch } from "./FileSearch.tsx"
import { FolderView } from "./FolderView.tsx"
import { fileName } from "./fileApi.ts"
import { UploadList } from "./UploadList.tsx"

/** The folders that the key reaches, each with a slash at its end. */
const rootsOf = (): ReadonlyArray<string> =>
  (caller.value?.paths ?? ["/"]).map((path) => (path.endsWith("/") ? path : `${path}/`))

/** Links to the folders of a path, as far as the key reaches them. */
const Crumbs = ({ id, path }: { readonly id: string; readonly path: string }): View => {
  const roots = rootsOf()
  const ends = [...path].flatMap((character, index) => (character === "/" ? [index + 1] : []))
  const folders = ends.map((end) => path.slice(0, end))
  const others = roots.filter((root) => !path.startsWith(root))
  const link = (folder: string, text: string) => (
    <a key={folder} href={addressOf.files(id, folder)} onClick={follow}>
      <bdi>{text}</bdi>
    </a>
  )
  return (
    <nav class="crumbs" aria-label="Folder">
      {folders.map((folder) => {
        const text = folder === "/" ? "Files" : fileName(folder)
        const isReached = roots.some((root) => folder.startsWith(root))
        return [
          folder !== "/" && <span aria-hidden="true">/</span>,
          isReached && folder !== path ? link(folder, text) : <bdi key={folder}>{text}</bdi>
        ]
      })}
      {!path.endsWith("/") && [
        <span key="slash" aria-hidden="true">
          /
        </span>,
        <bdi key="file" aria-current="page">
          {fileName(path)}
        </bdi>
      ]}
      {others.length > 0 && (
        <span class="crumbs-others">
          <span class="muted">Also: </span>
          {others.map((root) => link(root, root))}
        </span>
      )}
    </nav>
  )
}

/** The files of a server: a folder, or a file in the editor. */
export const Files = (props: {
  readonly id: string
  /** As in the address; empty: the first folder that the key reaches. */
  readonly path: string
  readonly line: number | undefined
}): View => {
  const { id } = props
  const path = props.path === "" ? (rootsOf()[0] ?? "/") : props.path
  const before = useRef<string>(undefined)
  const from = before.current
  useEffect(() => {
    before.current = path
  }, [path])
  const [searched, setSearched] = useState<string>()
  return (
    <div class="stack">
      <Crumbs id={id} path={path} />
      <UploadList id={id} />
      {searched !== undefined && (
        <div hidden={path !== searched}>
          <FileSearch key={searched} id={id} path={searched} onClose={() => setSearched(undefined)} />
        </div>
      )}
      {path.endsWith("/") ? (
        <FolderView key={path} id={id} path={path} from={from} onSearch={() => setSearched(path)} />
      ) : (
        <FileEditor key={`${path} ${props.line}`} id={id} path={path} line={props.line} />
      )}
    </div>
  )
}
