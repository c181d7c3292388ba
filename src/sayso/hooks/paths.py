"""What a path is: part of the project, a credential, or a file that something runs later.

A path is judged as it is written and as it is resolved: every symbolic link and ``..`` is followed
first. ``Files`` looks at the machine on which this code runs. A server judges calls of agents on
other machines too, so the hook sends what it found there (``sayso.hooks.calls``); looking never
makes a call less serious than its text.

Standard library only: the hook imports this module.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import posixpath
import re
from collections.abc import Collection, Iterator

from sayso.hooks.tables import CREDENTIALS, GIT_SETTINGS, LATER, SETTINGS

#: What was found, from a kind (``commands.KINDS``) to a sentence that says why.
Findings = dict[str, str]

#: Other paths than those in the table that decide what an agent may do. ``sayso.hooks.policies``
#: sets it; the hook itself knows no policy.
policy_files: Collection[str] = ()

_MAX_PATH = 4096
#: How many entries of folders one judgement looks at. To resolve a path counts as ten.
_MAX_ENTRIES = 3000
_MAX_CONFIG = 100_000
_MAX_INDEX = 32_000_000

#: Folders that do not count as a project, even if an agent works in one of them.
_NO_PROJECT = re.compile(
    r"^/?$|^/(?:etc|usr|bin|sbin|lib|boot|dev(?!/shm/)|proc|sys|var(?!/tmp/)|opt)(?:/|$)|"
    r"^/(?:home|Users)/[^/]+/?$|^/[^/]+/?$"
)
_DEVICES = ("/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/zero", "/dev/urandom")
#: Folders whose files come from other people's packages, or from git.
_PACKAGES = frozenset({".git", "node_modules", ".venv", "venv", "__pycache__", ".tox", ".nox"})
#: A name that ``xargs`` passes on as one word that is no option.
_ONE_WORD = re.compile(r"[\w.,@%+:=~^#][\w.,@%+:=~^#-]*")
#: Lines of a git configuration of which every character is understood.
_GIT_LINE = re.compile(
    r"[ \t]*(?:[#;].*"
    r'|\[(?P<section>[A-Za-z0-9-]+)(?P<subsection>[ \t]+"(?:[^"\\]|\\.)*")?\]'
    r"|(?P<name>[A-Za-z][A-Za-z0-9-]*)[ \t]*(?:=[ \t]*(?P<value>[^\r]*(?<!\\)))?)?[ \t]*\r?"
)
#: The start of a submodule in git's index, up to its path.
_SUBMODULE = re.compile(rb"\0\0\xe0\0.{34}([^\0]+)", re.S)
_PATH_AT_END = re.compile(r"[\w./@+-]{3,}$")


class Overrun(Exception):
    """A call names more files than one judgement looks at. The message is a sentence."""


class Files:
    """The files of one machine, around one working directory. ``look=False`` looks at none."""

    def __init__(self, project: str, *, look: bool = True) -> None:
        self.look = look
        self.project = self.real(project) if project else "/"
        self._home = self.real(os.path.expanduser("~")) if look else "/"
        self._path = os.environ.get("PATH", "").split(os.pathsep) if look else []
        self._left = _MAX_ENTRIES

    def _count(self, entries: int) -> None:
        self._left -= entries
        if self._left < 0:
            raise Overrun("The command is about too many files to look at.")

    def real(self, path: str) -> str:
        """Return a path with every symbolic link and ``..`` resolved."""
        return os.path.realpath(path) if self.look else posixpath.normpath(path)

    def contains(self, path: str) -> bool:
        """Return whether a resolved path is in the project."""
        if _NO_PROJECT.match(self.project) or f"{self._home}/".startswith(f"{self.project}/"):
            return False
        return path == self.project or path.startswith(f"{self.project}/")

    def path(self, path: str, cwd: str, *, writing: bool) -> Findings:
        """Return the findings of reading or writing a path."""
        self._count(10)
        hidden = not all(character.isprintable() or character.isspace() for character in path)
        if len(path) > _MAX_PATH or hidden:
            return {"unclear": "A path is too long, or has a character that is not visible."}
        if path.startswith("~"):
            return {"unclear": f"{path} depends on the user."}
        absolute = posixpath.join(cwd or "/", path)
        spellings = (path, posixpath.normpath(absolute), self.real(absolute))
        resolved = spellings[2]
        if resolved in _DEVICES or spellings[1] in _DEVICES:
            return {"read": ""}
        leads = "" if resolved == spellings[1] else f", which leads to {resolved},"
        findings: Findings = {}
        if any(CREDENTIALS.match(spelling) for spelling in spellings):
            findings["secret"] = f"{path}{leads} may hold credentials."
        if any(re.match(r"/dev/(?!shm/)|/inet[46]?/", spelling) for spelling in spellings):
            findings["unclear"] = f"{path} is a device or a network connection, not a file."
        if not writing:
            return findings or {"read": ""}
        if any(SETTINGS.match(name) or name in policy_files for name in spellings):
            findings["settings"] = (
                f"{path}{leads} configures an agent, git, a shell or a CI system."
            )
        elif any(LATER.match(spelling) for spelling in spellings) or self._runs(resolved):
            findings["later"] = (
                f"{path}{leads} is run, or read as code or commands, by other tools."
            )
        if not self.contains(resolved):
            findings["outside"] = f"{path}{leads} is not in the project."
        return findings or {"write": ""}

    def _runs(self, path: str) -> bool:
        """Return whether a path is in a folder in which the shell looks for programs."""
        return any(folder and path.startswith(f"{self.real(folder)}/") for folder in self._path)

    def program(self, name: str) -> str:
        """Return why a program by its bare name cannot be trusted, or ""."""
        path = self.find_program(name) if self.project != "/" else ""
        if path and not path.startswith("/"):
            folder = os.path.dirname(path) or "."
            return f"PATH contains {folder!r}, so {name} depends on the directory."
        places = (self.real(path), posixpath.normpath(path)) if path else ()
        if any(place.startswith(f"{self.project.rstrip('/')}/") for place in places):
            return f"{name} is {path}, a program of the project."
        return ""

    def find_program(self, name: str) -> str:
        """Return the path of the first program of this name in PATH, or "".

        A folder that is not absolute ends the search: any program may be in it.
        """
        for folder in self._path:
            path = os.path.join(folder, name)
            runs = os.access(path, os.X_OK) and not os.path.isdir(path)
            if runs or not folder.startswith("/"):
                return path
        return ""

    def expand(self, pattern: str, cwd: str) -> list[str]:
        """Return the words that a shell replaces a pattern by."""
        if not self.look:
            return [pattern]
        self._count(100)
        matches: list[str] = []
        start = 0 if pattern.startswith("/") else len(posixpath.join(cwd, ""))
        for match in glob.iglob(posixpath.join(glob.escape(cwd), pattern) if cwd else pattern):
            matches.append(match[start:])
            self._count(10)
        return matches or [pattern]

    def is_plain(self, path: str) -> bool:
        """Return whether a path is a regular file, not a link and not a folder."""
        return self.look and os.path.isfile(path) and not os.path.islink(path)

    def _entries(self, folder: str, hidden: bool) -> Iterator[os.DirEntry[str]]:
        """Yield the files, folders and links below a folder."""
        folders = [folder]
        while folders:
            try:
                entries = list(os.scandir(folders.pop()))
            except OSError:
                continue
            for entry in entries:
                self._count(1)
                if entry.name.startswith(".") and not hidden:
                    continue
                if entry.is_dir(follow_symlinks=False) and entry.name not in _PACKAGES:
                    folders.append(entry.path)
                yield entry

    def tree(
        self,
        path: str,
        *,
        hidden: bool = True,
        names: str = "*",
        plain_names: bool = False,
        writing: bool = False,
        follow: bool = False,
    ) -> Findings:
        """Return the findings of reading, or with ``writing`` copying, everything below a path.

        ``hidden=False`` skips names that begin with a dot, and ``names`` are patterns of the names
        that count, one per line. With ``plain_names``, a name that ``xargs`` would split counts as
        unclear; with ``follow``, a link to a folder does.
        """
        if not self.look or not os.path.isdir(path):
            return {}
        patterns = names.split("\n")
        for entry in self._entries(path, hidden):
            if plain_names and not _ONE_WORD.fullmatch(entry.name):
                return {"unclear": f"{path} contains {entry.name!r}, which is not one word."}
            spellings = [f"/{entry.name}"]
            if entry.is_symlink():
                spellings.append(self.real(entry.path))
                if writing or (follow and entry.is_dir()):
                    return {"unclear": f"{path} contains the symbolic link {entry.name}."}
            if not any(fnmatch.fnmatch(entry.name, name) for name in patterns):
                continue
            if any(CREDENTIALS.match(spelling) for spelling in spellings):
                return {"secret": f"{path} contains {entry.name}, which may hold credentials."}
            if writing and (LATER.match(spellings[0]) or SETTINGS.match(spellings[0])):
                return {"later": f"{path} contains {entry.name}, which other tools run."}
        return {}

    def shows_hidden(self, folder: str) -> bool:
        """Return whether an ignore file may make ``rg`` search hidden files."""
        names = (".ignore", ".rgignore", ".gitignore") if self.look else ()
        texts = [_read(os.path.join(folder, name)) for name in names]
        return any(re.search(r"^!.*[.*]", text, re.M) for text in texts)

    def upwards(self, cwd: str, names: str) -> str:
        """Return the first of some files in a folder or one above it, or ""."""
        folder = self.real(cwd)
        while self.look and names.strip():
            for name in names.split():
                if os.path.exists(os.path.join(folder, name)):
                    return os.path.join(folder, name)
            if folder == "/":
                break
            folder = os.path.dirname(folder)
            if folder == self._home:  # the files there are the user's own
                break
        return ""

    # -- git

    def repository(self, cwd: str, *, changes: bool, prints: bool) -> Findings:
        """Return the findings of a git command in a folder: what its repository makes git run.

        ``changes`` is whether it writes, so that hooks run; ``prints`` is whether it shows the
        content of files.
        """
        folder = self.real(cwd)
        while self.look and not os.path.lexists(dot_git := os.path.join(folder, ".git")):
            if all(
                os.path.exists(os.path.join(folder, name)) for name in ("HEAD", "objects", "refs")
            ):
                return {"unclear": f"{folder} is a git repository in a folder of the project."}
            if folder == "/":
                return {}
            folder = os.path.dirname(folder)
        if not self.look:
            return {}
        directory = self.real(dot_git)
        if os.path.isfile(directory):  # of a worktree or a submodule
            directory = self.real(
                os.path.join(folder, _read(directory).removeprefix("gitdir:").strip())
            )
        if ".git" not in directory.split("/"):
            return {
                "unclear": f"The repository's files are in {directory}, which is not protected."
            }
        common = self.real(
            os.path.join(directory, _read(os.path.join(directory, "commondir")).strip())
        )
        settings: list[tuple[str, str]] = []
        for place in {directory, common}:
            for name in ("config", "config.worktree"):
                settings += _git_settings(_read(os.path.join(place, name)))
        unknown = next((setting for setting in settings if not _is_known(setting)), None)
        if unknown or any(
            self.real(os.path.join(directory, value)) != folder
            for name, value in settings
            if name == "core.worktree"
        ):
            setting = unknown[0] if unknown else "core.worktree"
            return {
                "other": f"The repository sets {setting}, which may make git run another program."
            }
        hooks = [value for name, value in settings if name == "core.hookspath"]
        return (
            self._hooks(folder, common, hooks, changes)
            or self._tracked(directory, prints)
            or self._submodules(folder, directory)
        )

    def _submodules(self, folder: str, directory: str) -> Findings:
        """Return the findings of the repositories inside a repository: git looks at them too."""
        index = _read_index(directory)
        if b"\0\0\xe0\0" not in index:
            return {}
        if index[4:8] not in (b"\0\0\0\2", b"\0\0\0\3") or b"link\0\0\0" in index:
            return {"unclear": "The repository has submodules in an index that is not analysed."}
        for path in _SUBMODULE.findall(index):
            submodule = os.path.join(folder, os.fsdecode(path))
            self._count(10)
            if os.path.lexists(os.path.join(submodule, ".git")):
                findings = self.repository(submodule, changes=False, prints=False)
                if findings:
                    return findings
        return {}

    def stashed(self, cwd: str, *, back: bool) -> Findings:
        """Return the findings of putting changed files away, or with ``back`` of restoring them.

        This asks git, in a repository of which ``repository`` found nothing.
        """
        if not self.look or not self.upwards(cwd, ".git"):
            return {}
        import subprocess  # rarely needed

        command = ["stash", "show", "--name-only"] if back else ["diff", "--name-only", "HEAD"]
        run = subprocess.run(
            ["git", "-c", "safe.directory=*", "-C", cwd, *command],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
        if run.returncode and not back:  # without a stash, nothing comes back
            return {"unclear": "Git does not say which files the stash would take."}
        findings: Findings = {}
        for name in run.stdout.splitlines():
            findings |= self.path(name, cwd, writing=True)
        return findings

    def _hooks(self, folder: str, directory: str, paths: list[str], changes: bool) -> Findings:
        hooks = os.path.join(directory, "hooks")
        if paths:
            hooks = self.real(os.path.join(folder, os.path.expanduser(paths[0])))
            protected = LATER.match(hooks) or SETTINGS.match(hooks)
            if len(paths) > 1 or re.search(r"[\"\\#;]", paths[0]):
                return {"unclear": "The folder of git's hooks is not a plain path."}
            if self.contains(hooks) and not protected:
                return {"unclear": f"Git runs hooks from {hooks}, which is not protected."}
        try:
            active = [
                entry.name
                for entry in os.scandir(hooks)
                if not entry.name.endswith(".sample")
                and entry.is_file()
                and os.access(entry, os.X_OK)
            ]
        except OSError:
            return {}
        if active and (changes or "post-index-change" in active):
            return {"other": f"Git runs the hook {os.path.join(hooks, active[0])}."}
        return {}

    def _tracked(self, directory: str, prints: bool) -> Findings:
        """Return {"secret"} if credentials are tracked and the command shows files."""
        if not prints:
            return {}
        entries = _read_index(directory).decode("latin-1").split("\0")
        for entry in entries:
            path = _PATH_AT_END.search(entry)
            if path and CREDENTIALS.match(path[0]):
                return {"secret": f"Git shows {path[0]}, which may hold credentials."}
        return {}


def _git_settings(text: str) -> list[tuple[str, str]]:
    """Return the names and values of a git configuration. What is not understood has no value."""
    settings: list[tuple[str, str]] = []
    section = ""
    if len(text) == _MAX_CONFIG:
        settings.append(("too much to be analysed", ""))
    for line in text.split("\n"):
        match = _GIT_LINE.fullmatch(line)
        if match is None:
            settings.append((line.strip()[:80], ""))
        elif match["section"]:
            section = match["section"].lower() + (".*" if match["subsection"] else "")
        elif match["name"]:
            value = (match["value"] or "").strip()
            settings.append((f"{section}.{match['name'].lower()}", value))
    return settings


def _is_known(setting: tuple[str, str]) -> bool:
    """Return whether git runs no other program with a setting of a repository."""
    section, _, name = setting[0].rpartition(".")
    known = GIT_SETTINGS.get(section, frozenset())
    return "*" in known or name in known or f"{name}={setting[1]}" in known


def _read_index(directory: str) -> bytes:
    try:
        with open(os.path.join(directory, "index"), "rb") as file:
            return file.read(_MAX_INDEX)
    except OSError:
        return b""


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_MAX_CONFIG)
    except OSError:
        return ""
