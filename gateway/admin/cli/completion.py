"""``completion bash``, ``zsh`` and ``fish``: complete command lines.

They are made of the table of commands and of its parser's options, so that a command that is new
is completed, too. Owns what is offered where, and how each shell is told.

The programs that click makes have a command of the same name, which click's own completion serves.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.admin.cli.commands import FILE, Command, Common, Parser
from gateway.admin.cli.contexts import ContextRefused, path, read

SHELLS: Final = ("bash", "zsh", "fish")
#: Options that win over everything else.
_HELP: Final = ("-h", "-H", "-v")
#: Prints the names of contexts, for the scripts; offered nowhere.
_CONTEXTS: Final = "contexts"
#: Commands behind which a context is named.
_NAME_CONTEXTS: Final = (("context", "use"), ("context", "remove"))
#: Options whose value is a context.
_OF_CONTEXTS: Final = ("-context",)
#: Options whose value is a file.
_FILES: Final = ("-passfile", "-cacert", "-xml")


@dataclass(frozen=True)
class Vocabulary:
    """What can be on a program's command line.

    :param commands: by subcommand and argument the options of each, besides
    :param common: those that every command may have.
    :param valued: options that have a value, in all their spellings.
    :param words: the values of those that have a few only.
    """

    program: str
    commands: Mapping[tuple[str, str], Sequence[str]]
    common: Sequence[str]
    valued: Sequence[str]
    words: Mapping[str, Sequence[str]]

    @classmethod
    def of(
        cls,
        parser: Parser,
        commands: Mapping[tuple[str, str], Command],
        particular: Mapping[str, str],
        words: Mapping[str, Sequence[str]],
    ) -> Vocabulary:
        """Read it off a program's parser and its table.

        :param particular: options that only those commands have that name them, and their
            attributes.
        """
        options = parser.options()
        return cls(
            parser.prog,
            {which: sorted({*command.needs, *command.may}) for which, command in commands.items()},
            # As Open MQ writes them, with one dash.
            sorted(
                (
                    *_HELP,
                    *(
                        option
                        for option, (attribute, _) in options.items()
                        if option[:2] != "--" and attribute not in particular.values()
                    ),
                )
            ),
            sorted(option for option, (_, valued) in options.items() if valued),
            words,
        )


class _Asked:
    """What the program prints at each completion."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.command = f"{vocabulary.program} completion {_CONTEXTS} 2>/dev/null"


#: What is offered in a place: words, what the program prints, or None for files.
_Offer = Sequence[str] | _Asked | None


def _values(vocabulary: Vocabulary) -> list[tuple[Sequence[str], _Offer]]:
    """What is offered behind an option."""
    files = [each for each in vocabulary.valued if each.replace("--", "-") in _FILES]
    few = [each for each in vocabulary.valued if each in vocabulary.words]
    named = [each for each in vocabulary.valued if each.replace("--", "-") in _OF_CONTEXTS]
    others = [each for each in vocabulary.valued if each not in (*files, *few, *named)]
    cases: list[tuple[Sequence[str], _Offer]] = [([each], vocabulary.words[each]) for each in few]
    if files:
        cases.append((files, None))
    if named:
        cases.append((named, _Asked(vocabulary)))
    return [*cases, (others, ())]


def _options(vocabulary: Vocabulary) -> list[tuple[Sequence[str], _Offer]]:
    """The options that are offered behind words."""
    cases: list[tuple[Sequence[str], _Offer]] = []
    for (subcommand, argument), options in vocabulary.commands.items():
        words = f"{subcommand} *" if argument == FILE else f"{subcommand} {argument}".strip()
        cases.append(([words], sorted({*options, *vocabulary.common})))
    return [*cases, (["*"], vocabulary.common)]


def _words(vocabulary: Vocabulary) -> list[tuple[Sequence[str], _Offer]]:
    """The words that are offered behind words."""
    arguments: dict[str, list[str]] = {}
    for subcommand, argument in vocabulary.commands:
        if argument != _CONTEXTS:
            arguments.setdefault(subcommand, []).append(argument)
    cases: list[tuple[Sequence[str], _Offer]] = [([""], list(arguments))]
    for subcommand, found in arguments.items():
        offered = None if FILE in found else [each for each in found if each]
        cases.append(([subcommand], offered))
    cases += [
        ([" ".join(which)], _Asked(vocabulary))
        for which in _NAME_CONTEXTS
        if which in vocabulary.commands
    ]
    return cases


# --- the shells


def _posix(cases: Sequence[tuple[Sequence[str], _Offer]], name: str, indent: str) -> str:
    lines = []
    for patterns, offer in cases:
        pattern = "|".join("*" if each == "*" else _posix_pattern(each) for each in patterns)
        if offer is None:
            action = f"{name}_files"
        elif isinstance(offer, _Asked):
            action = f"{name}_offer $({offer.command})"
        else:
            action = f"{name}_offer {' '.join(offer)}" if offer else ":"
        lines.append(f"{indent}{pattern}) {action} ;;")
    return "\n".join(lines)


def _posix_pattern(text: str) -> str:
    return f"'{text[:-1]}'*" if text.endswith("*") else f"'{text}'"


_POSIX_BODY: Final = """\
  case $before in
{values}
    *)
      case $current in
        -*)
          case "${{typed[*]}}" in
{options}
          esac ;;
        *)
          case "${{typed[*]}}" in
{words}
          esac ;;
      esac ;;
  esac
}}
"""
_BASH: Final = (
    """\
# Completes {program} in bash; made by '{program} completion bash'.
{name}_offer() {{
  mapfile -t COMPREPLY < <(compgen -W "$*" -- "$current")
}}
{name}_files() {{
  compopt -o filenames
  mapfile -t COMPREPLY < <(compgen -f -- "$current")
}}
{name}() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} typed=() i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${{COMP_WORDS[i]}} in
      # A colon and an equals sign are words of their own here.
      {valued}|:|=) ((i++)) ;;
      -*) ;;
      *) typed+=("${{COMP_WORDS[i]}}") ;;
    esac
  done
  if [[ $current == [:=] || $before == [:=] ]]; then return; fi
"""
    + _POSIX_BODY
    + """\
complete -F {name} {program}
"""
)
_ZSH: Final = (
    """\
#compdef {program}
# Completes {program} in zsh; made by '{program} completion zsh'.
{name}_offer() {{
  compadd -- "$@"
}}
{name}_files() {{
  _files
}}
{name}() {{
  local current=${{words[CURRENT]}} before=${{words[CURRENT-1]}} i
  local -a typed
  for ((i = 2; i < CURRENT; i++)); do
    case ${{words[i]}} in
      {valued}) ((i++)) ;;
      -*) ;;
      *) typed+=("${{words[i]}}") ;;
    esac
  done
"""
    + _POSIX_BODY
    + """\
if [[ ${{funcstack[1]}} == {name} ]]; then
  # It is a file of fpath, which the first completion reads.
  {name} "$@"
else
  compdef {name} {program}
fi
"""
)
_FISH: Final = """\
# Completes {program} in fish; made by '{program} completion fish'.
function {name}_typed
  set -l skipped no
  set -l tokens (commandline -opc)
  for word in $tokens[2..-1]
    if test $skipped = yes
      set skipped no
      continue
    end
    switch $word
      case {valued}
        set skipped yes
      case '-*'
      case '*'
        echo $word
    end
  end
end
function {name}_offer
  set -l typed ({name}_typed)
  set -l tokens (commandline -opc)
  switch $tokens[-1]
{values}
    case '*'
      switch (commandline -ct)
        case '-*'
          switch "$typed"
{options}
          end
        case '*'
          switch "$typed"
{words}
          end
      end
  end
end
complete -c {program} -f -a '({name}_offer)'
"""


def _fish(cases: Sequence[tuple[Sequence[str], _Offer]], name: str, indent: str) -> str:
    lines = []
    for patterns, offer in cases:
        quoted = " ".join(f"'{each}'" for each in patterns)
        lines.append(f"{indent}case {quoted}")
        if offer is None:
            lines.append(f"{indent}  __fish_complete_path (commandline -ct)")
        elif isinstance(offer, _Asked):
            lines.append(f"{indent}  {offer.command}")
        elif offer:
            lines.append(f"{indent}  printf '%s\\n' {' '.join(offer)}")
    return "\n".join(lines)


def script(vocabulary: Vocabulary, shell: str) -> str:
    """Return the script that completes the program's command lines.

    :param shell: one of :data:`SHELLS`.
    """
    name = f"_{vocabulary.program}"
    template, cases, separator = {
        "bash": (_BASH, _posix, "|"),
        "zsh": (_ZSH, _posix, "|"),
        "fish": (_FISH, _fish, " "),
    }[shell]
    deep = " " * 12
    return template.format(
        program=vocabulary.program,
        name=name,
        valued=separator.join(vocabulary.valued),
        values=cases(_values(vocabulary), name, " " * 4),
        options=cases(_options(vocabulary), name, deep),
        words=cases(_words(vocabulary), name, deep),
    )


def completion_commands(
    vocabulary: Callable[[], Vocabulary],
) -> dict[tuple[str, str], Command]:
    """Return the commands that print the scripts.

    :param vocabulary: of the program, these commands included.
    """

    def run(command: Command, common: Common, options: Namespace) -> int:
        print(script(vocabulary(), options.argument), end="")
        return 0

    def name_contexts(command: Command, common: Common, options: Namespace) -> int:
        try:
            contexts = read(path(os.environ))
        except ContextRefused:
            # Where a command line is completed there is no place to say so.
            return 1
        print("\n".join(sorted(contexts.by_name)))
        return 0

    return {
        **{("completion", shell): Command(run=run) for shell in SHELLS},
        ("completion", _CONTEXTS): Command(run=name_contexts),
    }
