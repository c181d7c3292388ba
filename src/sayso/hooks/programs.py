"""The programs that only read, or only change files of the project: a table.

An entry names a program, or a program and its subcommand, and the options and operands with which
it is known to be harmless. Everything that is not in an entry is asked about. An entry is a text:

    -abc        three short options without a value
    -n=number   a short option with a value, in the same word or the next
    -#          a number as an option: ``head -5``
    --all       a long option without a value; abbreviations do not count
    --sort=text a long option with a value
    --color?    a long option that may have a value, after ``=``
    -e=regex^   a ``^`` at the end: it takes the place of the first operand
    -i>         a ``>`` at the end: it is the last in its word, and files to read are written
    -m=text!    a ``!`` at the end: it, or another one like it, must be given
    *           no word is an option
    : a b*      the kinds of the operands; ``*`` and ``+`` repeat one, ``?`` makes it optional

The kinds of values are the keys of ``VALUES``, and these:

    read, write   a path to read; a path in the project to write
    tree          a path to read with everything below it
    source        a path that is copied, links and folders included
    moved         a path that is moved or removed
"""

from __future__ import annotations

import re

#: A pattern of sed up to its end, which is never inside of brackets.
_PATTERN = r"(?:[^\\\n\[{0}]|\\[^\n]|\[\^?[^\\\n{0}\]]+\])*"
_LINE = rf"(?:\d+(?:~\d+)?|\$|/{_PATTERN.format('/')}/)"


def _substitution(mark: str) -> str:
    """Return the expression for a substitution of sed with this mark between its parts."""
    text = _PATTERN.format(mark)
    return rf"s\{mark}{text}\{mark}(?:[^\\\n{mark}]|\\[^\n])*\{mark}[gpiI\d]*"


#: The kinds of values that are not paths, and the text that they must match as a whole.
VALUES: dict[str, re.Pattern[str]] = {
    # Text that a program only prints, compares or searches for, and paths whose names it lists.
    "text": re.compile(r".*", re.S),
    "number": re.compile(r"[+-]?[\d.]+[a-zA-Z]{0,3}"),
    "word": re.compile(r"[\w.,:%/+-]+", re.A),
    "name": re.compile(r"[A-Za-z0-9_][\w./-]*", re.A),
    "mode": re.compile(r"0?[0-7]{3}|[ugoa]*[+=-][rwxX]+"),
    "date": re.compile(r"\+.*", re.S),
    "setting": re.compile(
        r"(?:user|core|init|remote|branch|commit|pull|push|diff|merge)\.[\w./-]+", re.A
    ),
    # Commands of sed that only print, delete and substitute lines: not e, w, r, or the flags e, w.
    "sed": re.compile(
        rf"(?:(?:{_LINE}(?:,(?:[+~]?\d+|{_LINE}))?)?[ ]?!?[ ]?"
        rf"(?:[pdqQ=]|{'|'.join(map(_substitution, '/|,#@:'))})(?:;[ ]?|$))+"
    ),
    # No output to files or programs (no ``>`` after ``print``), no other input, and no function that
    # is not listed.
    "awk": re.compile(
        r"(?!.*(?:system|getline|ENVIRON|ARGV|PROCINFO|SYMTAB|@|\\\n|print.*>(?!=)))"
        r"(?:[^|A-Za-z_]|\|\||[A-Za-z_]\w*+(?!\s*\()|(?:print|printf|length|substr|split|"
        r"tolower|toupper|g?sub|gensub|index|match|sprintf|int|if|for|while|in|return|and|or)\s*+(?=\())*+",
        re.S | re.A,
    ),
    # No environment, no modules, no other files.
    "jq": re.compile(
        r"(?!.*(?:\benv\b|\$ENV|\bimport\b|\binclude\b|\bmodulemeta\b|input_filename|\$__prog|\bhalt_error\b))"
        r".*",
        re.S,
    ),
    # Only %s, %b, %q and %%: zsh evaluates the arguments of the others.
    "format": re.compile(r"(?!-)(?:[^%]|%-?\d*[sbq]|%%)*", re.S),
    "archive": re.compile(r"-?t[vzjJ]*f"),
    "member": re.compile(r"(?!-)[^:\n]+"),
    "psword": re.compile(r"-?[auxfwlj]+"),
    "reflog": re.compile(r"(?!expire|delete|exists|drop|-).*"),
    "env": re.compile(r"PATH|HOME|USER|SHELL|LANG|PWD|TERM|EDITOR|VIRTUAL_ENV"),
    "placeholder": re.compile(r"\{\}"),
    # A revision or a path of git; a credential after a colon is found as a path is.
    "revision": re.compile(r"(?!-).*", re.S),
}

_GREP = (
    "-EFGPinvwxclLoqshHZzabUT -rR -A=number -B=number -C=number -# -m=number -e=text^ -f=read^ -d=word -D=word "
    "--extended-regexp --fixed-strings --basic-regexp --perl-regexp --ignore-case --no-ignore-case --invert-match "
    "--word-regexp --line-regexp --count --files-with-matches --files-without-match --only-matching --quiet "
    "--silent --no-messages --with-filename --no-filename --line-number --null --text --recursive "
    "--dereference-recursive --color? --colour? --include=text --exclude=text --exclude-dir=text "
    "--after-context=number --before-context=number --context=number --max-count=number --regexp=text^ "
    "--file=read^ --line-buffered --binary-files=word --byte-offset --initial-tab --null-data : text read*"
)
_SUM = "-bcztw --check --binary --text --tag --quiet --status --strict --warn --ignore-missing --zero : read*"

#: Options of git that choose and show commits.
_COMMITS = (
    "-# -n=number --max-count=number --skip=number --since=text --after=text --until=text --before=text "
    "--author=text --committer=text --grep=text -i --regexp-ignore-case -E --extended-regexp -F --fixed-strings "
    "--all-match --invert-grep --merges --no-merges --min-parents=number --max-parents=number --first-parent "
    "--all --branches? --tags? --remotes? --glob=text --exclude=text --oneline --pretty? --format=text "
    "--abbrev-commit --no-abbrev-commit --abbrev? --graph --no-graph --decorate? --no-decorate --date=text "
    "--relative-date --reverse --topo-order --date-order --author-date-order --follow --full-history "
    "--simplify-by-decoration --ancestry-path --left-right --left-only --right-only --cherry --cherry-pick "
    "--cherry-mark --boundary --walk-reflogs -g --source --name-only --name-status --no-notes --notes? "
    "--show-linear-break --no-walk? --do-walk --children --parents --show-pulls --log-size "
)
#: Options of git that show differences.
_DIFFS = (
    "-p -u --patch -s --no-patch -U=number --unified=number --raw --patch-with-raw --stat? --numstat --shortstat "
    "--dirstat? --summary --patch-with-stat -z --name-only --name-status --submodule? --color? --no-color "
    "--color-moved? --word-diff? --word-diff-regex=text --color-words? --no-renames --check --full-index --binary "
    "--abbrev? -B? -M? -C? --find-renames? --find-copies? --diff-filter=word -S=text -G=text --pickaxe-regex "
    "--pickaxe-all --find-object=word -R --relative? -a --text --ignore-cr-at-eol --ignore-space-at-eol -b "
    "--ignore-space-change -w --ignore-all-space --ignore-blank-lines -I=text --inter-hunk-context=number -W "
    "--function-context --exit-code --quiet --no-ext-diff --no-textconv --ignore-submodules? --src-prefix=text "
    "--dst-prefix=text --no-prefix --minimal --patience --histogram --diff-algorithm=word --compact-summary "
    "--cached --staged --merge-base -m -c --cc --combined-all-paths --indent-heuristic "
)

#: Programs that read. Those with a subcommand come before their program alone.
READS: dict[str, str] = {
    "ls": "-1aAbBcCdfFgGhHiklLmnNopqQrRsStuUvxXZ -I=text -T=number -w=number --all --almost-all --author --escape "
    "--block-size=word --ignore-backups --color? --directory --classify? --file-type --format=word --full-time "
    "--group-directories-first --no-group --human-readable --si --dereference --hide=text --hyperlink? "
    "--indicator-style=word --inode --ignore=text --literal --numeric-uid-gid --hide-control-chars "
    "--show-control-chars --quote-name --quoting-style=word --reverse --recursive --size --sort=word --time=word "
    "--time-style=text --tabsize=number --width=number --zero --version --help : text*",
    "cat": "-AbeEnstTuv --show-all --number-nonblank --show-ends --number --squeeze-blank --show-tabs "
    "--show-nonprinting --version : read*",
    "tac": "-br -s=text : read*",
    "head": "-# -n=number -c=number -qvz --lines=number --bytes=number --quiet --silent --verbose : read*",
    "tail": "-# -n=number -c=number -qvzfF -s=number --lines=number --bytes=number --quiet --verbose --follow? "
    "--retry --pid=number : read*",
    "wc": "-cmlLw --bytes --chars --lines --max-line-length --words --total=word : read*",
    "nl": "-b=text -d=text -f=text -h=text -i=number -l=number -n=word -s=text -v=number -w=number -p : read*",
    "rev": ": read*",
    "cut": "-b=text -c=text -d=text -f=text -nsz --bytes=text --characters=text --delimiter=text --fields=text "
    "--only-delimited --complement --output-delimiter=text : read*",
    "paste": "-d=text -sz --delimiters=text --serial : read*",
    "join": "-a=number -e=text -i -j=number -o=text -t=text -v=number -1=number -2=number --header : read*",
    "column": "-txe -s=text -o=text -c=number -N=text -R=text -J --table --separator=text : read*",
    "fold": "-bs -w=number : read*",
    "fmt": "-cstu -w=number : read*",
    "expand": "-i -t=text : read*",
    "tr": "-cCdst --complement --delete --squeeze-repeats --truncate-set1 : text*",
    "sort": "-bcCdfghiMmnrRsuVz -k=text -t=text --ignore-leading-blanks --dictionary-order --ignore-case "
    "--general-numeric-sort --human-numeric-sort --numeric-sort --version-sort --month-sort --random-sort --reverse "
    "--key=text --field-separator=text --stable --unique --zero-terminated --check? --merge : read*",
    "uniq": "-cdDiuz -f=number -s=number -w=number --count --repeated --ignore-case --unique --skip-fields=number "
    "--skip-chars=number --check-chars=number : read?",
    "comm": "-123z --nocheck-order --check-order --output-delimiter=text --total : read*",
    "cmp": "-bls -i=number -n=number --print-bytes --verbose --quiet --silent : read*",
    "diff": "-abBcdeEiNnpqrstTuwyZ -# -U=number -C=number -I=text -W=number -x=text --brief --unified? --context? "
    "--side-by-side --recursive --ignore-case --ignore-all-space --ignore-space-change --ignore-blank-lines "
    "--ignore-trailing-space --strip-trailing-cr --color? --exclude=text --minimal --suppress-common-lines "
    "--width=number --text --new-file --report-identical-files --no-dereference : tree*",
    "grep": _GREP,
    "egrep": _GREP,
    "fgrep": _GREP,
    "rg": "-nNiSsvwxcloqFPUaH0p -uh. -A=number -B=number -C=number -m=number -e=text^ -f=read^ -g=text -t=word "
    "-T=word -d=number -j=number -M=number -r=text -E=word --line-number --no-line-number --ignore-case "
    "--smart-case --case-sensitive --invert-match --word-regexp --line-regexp --count --count-matches "
    "--files-with-matches --files-without-match --only-matching --quiet --fixed-strings --pcre2 --multiline "
    "--multiline-dotall --text --with-filename --no-filename --null --heading --no-heading --pretty --vimgrep "
    "--json --column --no-column --trim --stats --sort=word --sortr=word --glob=text --iglob=text --type=word "
    "--type-not=word --type-list^ --max-depth=number --maxdepth=number --max-count=number --max-columns=number "
    "--max-columns-preview --max-filesize=word --threads=number --replace=text --regexp=text^ --file=read^ --files^ "
    "--hidden --no-ignore --no-ignore-vcs --unrestricted --color=word --colors=text --context=number "
    "--after-context=number --before-context=number --context-separator=text --no-messages --no-config --passthru "
    "--encoding=word --engine=word --crlf --no-unicode --path-separator=text --version : text tree*",
    "fd": "-HIuiasgFp0 -t=word -e=word -d=number -E=text -S=word --hidden --no-ignore --type=word --extension=word "
    "--max-depth=number --min-depth=number --exclude=text --glob --absolute-path --color=word --changed-within=text "
    "--changed-before=text --size=word --full-path --fixed-strings : text text*",
    "tree": "-adfiqNpsuhgDFrtUvcxACSJX -L=number -I=text -P=text --dirsfirst --filesfirst --noreport --prune --gitignore "
    "--charset=word --filelimit=number --du --si --inodes --device --matchdirs --ignore-case --sort? --nolinks "
    ": text*",
    "du": "-0abcDhHklLmPsSx -d=number -t=word --all --apparent-size --block-size=word --bytes --total "
    "--max-depth=number --human-readable --si --summarize --one-file-system --threshold=word --time? "
    "--exclude=text : text*",
    "df": "-aBhHiklPT -t=word -x=word --all --human-readable --si --inodes --print-type --total --output? : text*",
    "stat": "-Lft -c=text --dereference --file-system --format=text --printf=text --terse : text*",
    "file": "-bihkLNnprsv0 --brief --mime --mime-type --mime-encoding --dereference : read*",
    "basename": "-az -s=text --multiple --suffix=text : text*",
    "dirname": "-z : text*",
    "realpath": "-eLmPqsz --canonicalize-existing --canonicalize-missing --relative-to=text --relative-base=text "
    "--no-symlinks : text*",
    "readlink": "-efmnqsvz --canonicalize : text*",
    "md5sum": _SUM,
    "sha1sum": _SUM,
    "sha224sum": _SUM,
    "sha256sum": _SUM,
    "sha512sum": _SUM,
    "b2sum": _SUM,
    "cksum": ": read*",
    "shasum": "-bctp -a=number : read*",
    "base64": "-di -w=number --decode --wrap=number : read*",
    "xxd": "-abcEeipruC -l=number -s=number -g=number -c=number -o=number : read?",
    "od": "-abcdfilosvx -A=word -j=number -N=number -t=word -w=number : read*",
    "hexdump": "-bcCdovx -n=number -s=number : read*",
    "strings": "-af -n=number -t=word -e=word : read*",
    "seq": "-w -f=word -s=text : number*",
    "sleep": ": number*",
    "date": "-uIR -d=text --utc --universal --date=text --iso-8601? --rfc-3339=word --rfc-email : date?",
    "cal": "-13jmy : number*",
    "uptime": "-ps :",
    "free": "-bkmghtw --human --mega --giga :",
    "nproc": "--all :",
    "lscpu": ":",
    "arch": ":",
    "hostname": "-adfiIsy :",
    "uname": "-amnoprsv --all :",
    "whoami": ":",
    "id": "-agGnruz : word?",
    "groups": ": word?",
    "tty": ":",
    "locale": "-a :",
    "printenv": ": env+",
    "ps": "-AaCdefFHjlmMTuwxyZ -o=word -p=word -u=word --sort=text --no-headers --forest : psword?",
    "pgrep": "-aflnox -u=word : text*",
    "lsof": "-nPt -i? -p=word : word*",
    "pwd": "-LP :",
    "echo": "* : text*",
    "printf": "* : format text*",
    "true": ":",
    "false": ":",
    ":": ":",
    "which": "-a --all : word*",
    "type": "-aptP : word*",
    "whereis": "-bms : word*",
    "command": "-vV : word*",
    "sed": "-nErszu -e=sed^ --quiet --silent --expression=sed^ --regexp-extended --null-data --separate "
    "--unbuffered --posix --debug -i> --in-place> : sed read*",
    "awk": "-F=text -v=text --field-separator=text --assign=text : awk read*",
    "gawk": "-F=text -v=text : awk read*",
    "mawk": "-F=text -v=text : awk read*",
    "jq": "-nrcsSeRajCM --raw-output --compact-output --slurp --sort-keys --null-input --raw-input --exit-status "
    "--ascii-output --join-output --tab --indent=number --color-output --monochrome-output --arg=text2 "
    "--argjson=text2 --version : jq read*",
    "tar": "* : archive member*",
    "unzip -l": ": read",
    "unzip -Z1": ": read",
    "zipinfo": "-1lmsv : read",
    "git": "--version :",
    "git status": "-bsvz -u? --short --branch --porcelain? --long --verbose --show-stash --untracked-files? --ignored? "
    "--ignore-submodules? --column? --no-column --ahead-behind --no-ahead-behind --renames --no-renames "
    "--find-renames? : revision*",
    "git diff": _DIFFS + ": revision*",
    "git log": _COMMITS + _DIFFS + "-L=revision : revision*",
    "git show": _COMMITS + _DIFFS + ": revision*",
    "git whatchanged": _COMMITS + _DIFFS + ": revision*",
    "git reflog": _COMMITS + ": reflog?",
    "git reflog show": _COMMITS + ": revision*",
    "git rev-list": _COMMITS
    + "--count --objects --no-object-names --disk-usage --quiet : revision*",
    "git shortlog": "-nsec --numbered --summary --email --group=word --since=text --until=text --no-merges "
    "--all : revision*",
    "git diff-tree": _DIFFS + "-rt --no-commit-id --root --pretty? --format=text : revision*",
    "git diff-files": _DIFFS + ": revision*",
    "git diff-index": _DIFFS + ": revision*",
    "git range-diff": "--creation-factor=number --no-color --stat : revision*",
    "git blame": "-bcefklnpstw -L=revision -M? -C? --root --show-stats --porcelain --line-porcelain --incremental "
    "--show-name --show-number --show-email --since=text --date=text --abbrev=number --reverse : revision*",
    "git annotate": "-L=revision : revision*",
    "git grep": "-aiIwvhHEGFPnlLzocpqW -A=number -B=number -C=number -# -e=text^ -m=number --cached --untracked --text "
    "--ignore-case --word-regexp --invert-match --extended-regexp --basic-regexp --perl-regexp --fixed-strings "
    "--line-number --column --name-only --files-with-matches --files-without-match --null --only-matching --count "
    "--color? --no-color --break --heading --show-function --context=number --after-context=number "
    "--before-context=number --function-context --and --or --not --all-match --quiet --max-depth=number "
    "--full-name : text revision*",
    "git ls-files": "-cdimoskuvtz -x=text --cached --deleted --modified --others --ignored --stage --killed --unmerged "
    "--exclude-standard --directory --no-empty-directory --full-name --error-unmatch --abbrev? --eol "
    "--deduplicate --exclude=text --format=text --recurse-submodules : revision*",
    "git ls-tree": "-drtlz --name-only --name-status --full-name --full-tree --long --abbrev? --format=text : revision*",
    "git cat-file": "-tsep : word? revision",
    "git rev-parse": "-q --verify --short? --abbrev-ref? --show-toplevel --show-prefix --show-cdup --git-dir "
    "--absolute-git-dir --git-common-dir --is-inside-work-tree --is-inside-git-dir --is-bare-repository --symbolic "
    "--symbolic-full-name --all --branches? --tags? --remotes? --show-superproject-working-tree --quiet "
    "--is-shallow-repository --revs-only --no-revs --sq --show-object-format : revision*",
    "git describe": "--all --tags --contains --always --long --abbrev=number --candidates=number --dirty? --broken? "
    "--exact-match --match=text --exclude=text --first-parent : revision*",
    "git merge-base": "-a --all --is-ancestor --fork-point --octopus --independent : revision*",
    "git name-rev": "--tags --all --name-only --refs=text --always : revision*",
    "git branch": "-alrvqi --all --list --remotes --verbose --show-current --sort=text --format=text --column? "
    "--no-column --color? --no-color --abbrev=number --contains=revision --no-contains=revision --merged=revision "
    "--no-merged=revision --points-at=revision --ignore-case :",
    "git tag": "-l -n? -i --list --sort=text --format=text --contains=revision --no-contains=revision "
    "--merged=revision --no-merged=revision --points-at=revision --column? --ignore-case :",
    "git branch --list": "-alrv --sort=text --format=text : text*",
    "git branch -l": "--sort=text --format=text : text*",
    "git tag --list": "-n? --sort=text --format=text : text*",
    "git tag -l": "-n? --sort=text --format=text : text*",
    "git remote": "-v --verbose :",
    "git remote -v": ":",
    "git remote get-url": "--all --push : name",
    "git stash list": _COMMITS + _DIFFS + ":",
    "git stash show": _DIFFS + "--include-untracked : revision?",
    "git show-ref": "-dq -s? --head --heads --tags --branches --verify --hash? --abbrev? : revision*",
    "git for-each-ref": "--count=number --sort=text --format=text --points-at=revision --merged=revision "
    "--no-merged=revision --contains=revision : revision*",
    "git symbolic-ref": "-q --short --quiet : name",
    "git check-ignore": "-qvnz --verbose --quiet --non-matching --no-index : revision*",
    "git check-attr": "-az --all : revision*",
    "git count-objects": "-vH --verbose --human-readable :",
    "git worktree list": "-vz --porcelain --verbose :",
    "git config": "--get --get-all --global --local --system --show-origin : setting",
    "git version": ":",
    "git help": ":",
    "npm ls": "-a -g --all --depth=number --json --long --parseable --omit=word --global : word*",
    "npm list": "-a -g --all --depth=number --json --long --parseable --omit=word --global : word*",
    "pip list": "--format=word --not-required --user :",
    "pip freeze": "--all --user --exclude=word :",
    "pip show": "-f --files --verbose : word*",
    "java -version": ":",
    "javac -version": ":",
    "openssl version": ":",
    "go version": ":",
    **{
        name: f"{options} --version :"
        for options, names in {
            "": "bash zsh java javac cmake ninja rustup tsc jupyter aws gh vim nvim emacs sqlite3 redis-cli psql",
            "-V": "python python3 python2 pip pip3 curl wget ssh uv uvx cargo rustc tmux",
            "-v": "node npm pnpm yarn bun ruby gem perl php docker make gcc g++ cc clang terraform",
        }.items()
        for name in names.split()
    },
}
for _name in ("pip list", "pip freeze", "pip show"):
    READS[_name.replace("pip", "pip3")] = READS[_name]
READS["fdfind"] = READS["fd"]
READS["ripgrep"] = READS["rg"]

#: Programs that change files of the project, and nothing else.
WRITES: dict[str, str] = {
    "touch": "-acmh -d=text -t=number -r=read --no-create --date=text : write*",
    "mkdir": "-pv -m=mode --parents --verbose --mode=mode : write*",
    "rmdir": "-pv --parents --ignore-fail-on-non-empty : moved*",
    "cp": "-afinprRuvT -t=write --archive --force --interactive --no-clobber --recursive --update --verbose "
    "--preserve? --target-directory=write : source* write",
    "mv": "-finuvT -t=write --force --interactive --no-clobber --update --verbose "
    "--target-directory=write : moved* write",
    "tee": "-ai --append --ignore-interrupts : write*",
    "rm": "-fiIv --force --verbose : moved*",
    "chmod": "-cfv --verbose --changes : mode write*",
    "git add": "-AunvN --all --update --dry-run --verbose --intent-to-add : revision*",
    "git commit": "-aqv -m=text! -F=read! --all --message=text! --file=read! --quiet --verbose --allow-empty --signoff "
    "-s --only : revision*",
    "git checkout -b": "-q --quiet : name",
    "git switch -c": "-q --quiet : name",
    "git switch --create": "-q --quiet : name",
    "git branch": "-q --quiet : name",
    "git tag": "-m=text --message=text : name",
    "git tag -a": "-m=text! --message=text! : name",
    "git stash": "-uaqk --include-untracked --all --quiet --keep-index :",
    "git stash push": "-uaqk -m=text --include-untracked --all --quiet --keep-index --message=text : revision*",
    "git stash pop": "-q --quiet --index :",
    "git stash apply": "-q --quiet --index :",
    "git mv": "-kv --verbose : moved* write",
    "git rm": "-qn --cached --quiet --dry-run : moved*",
    "git init": "-q -b=name --quiet --initial-branch=name :",
    "git restore --staged": "-q --quiet : revision*",
}

#: Programs that run another program: their options, and their operands before it.
WRAPPERS: dict[str, str] = {
    "env": ":",
    "nohup": ":",
    "time": "-p :",
    "nice": "-n=number --adjustment=number :",
    "timeout": "-k=number -s=word -v --kill-after=number --signal=word --foreground --preserve-status "
    "--verbose : number",
    "stdbuf": "-i=word -o=word -e=word --output=word --error=word --input=word :",
    "command": ":",
    "xargs": "-0rt -n=number -L=number -P=number -s=number -d=text -I=placeholder --null --no-run-if-empty --verbose "
    "--max-args=number --max-lines=number --max-procs=number --max-chars=number --delimiter=text :",
}

#: Variables that ``env`` may set: they change how output looks.
ENVIRONMENT = frozenset(
    ["LANG", "LC_ALL", "LC_CTYPE", "TZ", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "COLUMNS", "CI", "TERM"]
)

#: Tests and actions of ``find`` that only read, each with the number of its values.
FIND: dict[str, int] = {
    **dict.fromkeys(
        ["-print", "-print0", "-ls", "-prune", "-quit", "-depth", "-mount", "-xdev", "-empty", "-executable", "-readable", "-writable", "-true", "-false", "-not", "-o", "-or", "-a", "-and", "-follow", "-daystart", "-nouser", "-nogroup", "-noleaf", "-ignore_readdir_race"],
        0,
    ),
    **dict.fromkeys(
        ["-name", "-iname", "-path", "-ipath", "-wholename", "-iwholename", "-regex", "-iregex", "-lname", "-ilname", "-type", "-xtype", "-size", "-mtime", "-atime", "-ctime", "-mmin", "-amin", "-cmin", "-newer", "-anewer", "-cnewer", "-newermt", "-newerct", "-maxdepth", "-mindepth", "-perm", "-user", "-group", "-uid", "-gid", "-links", "-inum", "-samefile", "-fstype", "-regextype", "-printf", "-used"],
        1,
    ),
}

#: The kind of programs that are always asked about, for the rule that asks.
ASKED: dict[str, str] = {
    name: kind
    for kind, names in {
        "network": "curl wget ssh scp sftp rsync nc ncat netcat telnet ftp dig nslookup ping http https",
        "privileged": "sudo su doas pkexec chown chroot mount umount systemctl service useradd usermod passwd visudo "
        "setcap crontab at launchctl iptables sysctl insmod modprobe",
        "delete": "shred dd mkfs truncate wipefs rm find",
        "publish": "terraform tofu kubectl helm aws gcloud az gh glab docker podman ansible-playbook pulumi serverless "
        "vercel netlify flyctl heroku twine",
        "install": "apt apt-get dnf yum apk pacman zypper npx uvx bunx",
    }.items()
    for name in names.split()
} | {
    f"{name} {command}": kind
    for kind, commands in {
        "install": {
            "pip pip3 pipx gem brew conda mamba": "install",
            "npm pnpm bun": "install i add ci update exec",
            "yarn": "add install up upgrade dlx",
            "uv": "add sync pip tool lock",
            "poetry": "add install update",
            "cargo": "install add",
            "go": "get install",
        },
        "publish": {"npm pnpm yarn cargo poetry uv": "publish", "git": "push"},
        "network": {"git": "fetch pull clone ls-remote submodule remote"},
        "delete": {
            "git": "clean reset restore checkout gc prune reflog filter-branch branch tag stash rm"
        },
    }.items()
    for names, words in commands.items()
    for name in names.split()
    for command in words.split()
}

#: Files in a folder or above it that make a program run something else than itself.
OBEYED: dict[str, str] = {
    **dict.fromkeys(("cargo", "rustc"), "rust-toolchain rust-toolchain.toml"),
    "go": "go.mod go.work",
    **dict.fromkeys(("yarn", "pnpm"), ".yarnrc .yarnrc.yml .pnpmfile.cjs package.json"),
}

#: Interpreters: what they read from a pipe, they run.
INTERPRETERS = frozenset(
    ["sh", "bash", "zsh", "dash", "ksh", "fish", "python", "python3", "node", "deno", "bun", "ruby", "perl", "php", "source", ".", "eval"]
)
#: Programs that are part of the shell, and not looked up.
BUILTINS = frozenset(["cd", "echo", "printf", "test", "[", "true", "false", ":", "pwd", "type", "command"])
#: Programs that cannot write or run anything, whatever their options are: ``xargs`` may pass names.
INERT = frozenset(
    ["wc", "cat", "head", "tail", "ls", "grep", "egrep", "fgrep", "stat", "md5sum", "sha1sum", "sha256sum", "du", "basename", "dirname", "echo", "nl", "cut"]
)
#: Subcommands of git that show the content of files.
GIT_PRINTS = frozenset(
    ["diff", "log", "show", "whatchanged", "blame", "annotate", "grep", "cat-file", "diff-tree", "diff-files", "diff-index", "range-diff"]
)
