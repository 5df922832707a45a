/**
 * The text editor, in a file that the page loads late, as CodeMirror is larger than the rest of the dashboard. Nothing of
 * the dashboard is imported here: the bundle would load the page a second time.
 */
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands"
import { json } from "@codemirror/lang-json"
import { xml } from "@codemirror/lang-xml"
import { yaml } from "@codemirror/lang-yaml"
import {
  bracketMatching,
  HighlightStyle,
  indentOnInput,
  StreamLanguage,
  syntaxHighlighting
} from "@codemirror/language"
import { properties } from "@codemirror/legacy-modes/mode/properties"
import { shell } from "@codemirror/legacy-modes/mode/shell"
import { toml } from "@codemirror/legacy-modes/mode/toml"
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search"
import { Compartment, EditorState, type Extension } from "@codemirror/state"
import {
  drawSelection,
  EditorView,
  highlightActiveLine,
  highlightSpecialChars,
  keymap,
  lineNumbers
} from "@codemirror/view"
import { tags } from "@lezer/highlight"

const stream = (mode: Parameters<typeof StreamLanguage.define>[0]) => () => StreamLanguage.define(mode)

const languages: ReadonlyArray<readonly [RegExp, () => Extension]> = [
  [/\.(json|json5|mcmeta|webmanifest)$/i, json],
  [/\.ya?ml$/i, yaml],
  [/\.(xml|html|svg)$/i, xml],
  [/\.toml$/i, stream(toml)],
  [/\.(sh|bash|bashrc|profile)$/i, stream(shell)],
  [/\.(properties|cfg|conf|ini|env|lang)$/i, stream(properties)]
]

/** Colours are those of the style sheet, which follow the theme. */
const highlighting = HighlightStyle.define([
  { tag: [tags.keyword, tags.bool, tags.null, tags.atom], color: "var(--violet)" },
  { tag: [tags.string, tags.attributeValue], color: "var(--green)" },
  { tag: [tags.number, tags.literal], color: "var(--amber)" },
  {
    tag: [tags.propertyName, tags.attributeName, tags.definition(tags.variableName)],
    color: "var(--accent)"
  },
  { tag: [tags.tagName, tags.typeName, tags.heading], color: "var(--blue)" },
  { tag: tags.invalid, color: "var(--red)" },
  { tag: tags.comment, color: "var(--muted)", fontStyle: "italic" }
])

const look = EditorView.theme({
  "&": { height: "100%", color: "var(--ink)", backgroundColor: "var(--surface)", fontSize: "12.5px" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.5" },
  ".cm-content": { caretColor: "var(--ink)" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  ".cm-gutters": {
    backgroundColor: "var(--surface)",
    color: "var(--muted)",
    borderRight: "1px solid var(--line)"
  },
  ".cm-activeLine": { backgroundColor: "transparent", boxShadow: "inset 2px 0 0 var(--accent)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: "var(--accent-soft)"
  },
  ".cm-searchMatch": { backgroundColor: "var(--amber-soft)", outline: "1px solid var(--amber)" },
  ".cm-searchMatch-selected": { backgroundColor: "var(--accent-soft)", outlineColor: "var(--accent)" },
  ".cm-selectionMatch": { backgroundColor: "var(--green-soft)" },
  ".cm-panels": { backgroundColor: "var(--raised)", color: "var(--ink)", borderColor: "var(--line)" },
  ".cm-panel.cm-search": { fontFamily: "var(--sans)", fontSize: "13px", padding: "6px 32px 6px 10px" },
  ".cm-panel.cm-search :is(input, button, label)": { fontSize: "12.5px" },
  ".cm-textfield": {
    backgroundColor: "var(--surface)",
    border: "1px solid var(--line-strong)",
    color: "var(--ink)",
    padding: "4px 6px"
  },
  ".cm-button": {
    backgroundImage: "none",
    backgroundColor: "var(--surface)",
    border: "1px solid var(--line-strong)",
    borderRadius: "6px",
    color: "var(--ink)",
    padding: "4px 8px"
  },
  ".cm-panel.cm-search [name=close]": { color: "var(--ink)", fontSize: "18px", padding: "0 8px" }
})

export interface TextEditor {
  readonly text: () => string
  readonly replace: (text: string) => void
  /** Takes a text, which the service now has, as the one without changes. */
  readonly saved: (text: string) => void
  readonly setDark: (isDark: boolean) => void
  readonly close: () => void
}

interface EditorOptions {
  readonly name: string
  readonly text: string
  readonly isReadOnly: boolean
  /** The line that is shown first, from 1. */
  readonly line: number | undefined
  readonly onChange: (isChanged: boolean) => void
  readonly onSave: () => void
}

/** Returns the end of most lines, so that a text that is not changed is stored as it was. */
const lineEndOf = (text: string): string => {
  const ends = text.split("\r\n").length - 1
  return ends * 2 > text.split("\n").length - 1 ? "\r\n" : "\n"
}

/**
 * Opens an editor. Its shadow tree has constructed style sheets, as the policy of the page allows no style elements.
 */
export const openEditor = (element: HTMLElement, options: EditorOptions): TextEditor => {
  const { isReadOnly, line, name, onChange, onSave } = options
  const root = element.shadowRoot ?? element.attachShadow({ mode: "open", delegatesFocus: true })
  const darkness = new Compartment()
  let isDark = false
  const stateOf = (text: string) =>
    EditorState.create({
      doc: text,
      extensions: [
        EditorState.lineSeparator.of(lineEndOf(text)),
        EditorState.readOnly.of(isReadOnly),
        EditorView.contentAttributes.of({ "aria-label": `Contents of ${name}`, spellcheck: "false" }),
        darkness.of(EditorView.darkTheme.of(isDark)),
        lineNumbers(),
        highlightSpecialChars(),
        history(),
        drawSelection(),
        indentOnInput(),
        bracketMatching(),
        highlightActiveLine(),
        highlightSelectionMatches(),
        search({ top: true }),
        syntaxHighlighting(highlighting),
        languages.find(([names]) => names.test(name))?.[1]() ?? [],
        look,
        matchMedia("(max-width: 760px)").matches ? EditorView.lineWrapping : [],
        keymap.of([
          {
            key: "Mod-s",
            preventDefault: true,
            run: () => {
              onSave()
              return true
            }
          },
          ...searchKeymap,
          ...historyKeymap,
          ...defaultKeymap
        ]),
        EditorView.updateListener.of(({ docChanged, state }) => {
          if (docChanged) onChange(!state.doc.eq(kept))
        })
      ]
    })
  const view = new EditorView({ state: stateOf(options.text), root, parent: root })
  let kept = view.state.doc
  if (line !== undefined) {
    const at = view.state.doc.line(Math.min(line, view.state.doc.lines))
    view.dispatch({
      selection: { anchor: at.from },
      effects: EditorView.scrollIntoView(at.from, { y: "center" })
    })
  }
  view.focus()
  return {
    text: () => view.state.sliceDoc(),
    replace: (text) => {
      view.setState(stateOf(text))
      kept = view.state.doc
      onChange(false)
    },
    saved: (text) => {
      kept = view.state.toText(text)
      onChange(!view.state.doc.eq(kept))
    },
    setDark: (next) => {
      isDark = next
      view.dispatch({ effects: darkness.reconfigure(EditorView.darkTheme.of(isDark)) })
    },
    close: () => view.destroy()
  }
}
