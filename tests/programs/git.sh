#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# git: a history made, cloned in all ways, rebased, packed and checked, as root and as an ordinary
# user.  Each result is compared with the same commands off the mount: equal input and equal dates
# give equal commit ids.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/program.sh"
command -v git >/dev/null || skip_all "needs git"
program_begin "$@"
requires_reachable "$W"
commits=${long:+100}
commits=${commits:-12}

# What is run, in the directory that it is given; prints what can be compared.
cat >"$T/session" <<'END'
set -eu
cd "$1"
commits=$2
export HOME=$PWD GIT_CONFIG_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0 LC_ALL=C TZ=UTC
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=C GIT_COMMITTER_EMAIL=c@example.org
clock=1700000000
tick() { clock=$((clock + 60)); export GIT_AUTHOR_DATE="$clock +0000" GIT_COMMITTER_DATE="$clock +0000"; }
git config --global init.defaultBranch main
git config --global advice.detachedHead false
git config --global gc.auto 0
git config --global core.fsync all
git config --global protocol.file.allow always
tick
git init -q origin
cd origin
mkdir -p a/b/c d
for i in $(seq 40); do
    seq $i $((i * 40)) >a/b/file$i
    seq $((i * 3)) >d/file$i
done
printf '#!/bin/sh\necho run\n' >a/run
chmod +x a/run
ln -s run a/link
ln -s nowhere/at/all a/dangling
: >empty
i=0
while [ $i -lt 300 ]; do echo "line $i"; i=$((i + 1)); done >text
git add -A
git commit -qm first
for i in $(seq "$commits"); do
    tick
    sed -i "s/^$((i % 40 + 1))\$/changed $i/" a/b/file$((i % 40 + 1))
    sed -i "$((i * 7 % 300 + 1))s/.*/commit $i/" text
    echo "$i" >>d/file$((i % 7 + 1))
    git mv d/file$((i % 20 + 20)) d/moved 2>/dev/null || :
    [ ! -e d/moved ] || git mv d/moved d/file$((i % 20 + 20))
    git commit -qam "commit $i"
    # The index knows right after a checkout what is unchanged.
    test -z "$(git status --porcelain)"
done
git rev-parse HEAD

# Branches and a rebase, with and without a conflict.
git checkout -q -b topic HEAD~5
for i in 1 2 3 4; do
    tick
    echo "topic $i" >>d/topic
    git add -A
    git commit -qm "topic $i"
done
tick
git rebase -q main
git rev-parse HEAD
git checkout -q -b clash main~6
tick
sed -i '1,40s/^/clash /' text
git commit -qam clash
tick
if git rebase -q topic >../rebase.out 2>&1; then echo "no conflict"; else
    git checkout -q --theirs text
    git add text
    tick
    GIT_EDITOR=true git rebase --continue >../rebase.out 2>&1
fi
git rev-parse HEAD
git checkout -q main
tick
git merge -q --no-ff -m merged clash
git rev-parse HEAD
tick
git stash list
echo stashed >>text
git stash -q
test -z "$(git status --porcelain)"
git stash pop -q
git checkout -q -- text
git rm -q -r d
git reset -q --hard
git clean -qfdx
git tag -m tagged v1
git worktree add -q ../tree topic
git -C ../tree status --porcelain
git worktree remove ../tree
git bisect start -q HEAD HEAD~8 >/dev/null
git bisect run sh -c '! grep -q "commit 9" text' >/dev/null 2>&1 || :
git bisect reset >/dev/null 2>&1
git archive HEAD | tar t | LC_ALL=C sort | md5sum
git fsck --full --strict --no-progress --no-dangling
cd ..

# Every way to clone.
git clone -q --no-local "file://$PWD/origin" over-transport
git clone -q origin hard-links
git clone -q --no-hardlinks origin copied
git clone -q --shared origin shared
git clone -q --mirror origin mirror.git
git clone -q --depth 3 "file://$PWD/origin" shallow
for c in over-transport hard-links copied shared shallow; do
    git -C $c rev-parse HEAD
    test -z "$(git -C $c status --porcelain)"
    git -C $c fsck --full --strict --no-progress --no-dangling
done
git -C origin bundle create -q ../all.bundle --all
git clone -q all.bundle from-bundle
git -C from-bundle rev-parse HEAD

# Push, fetch, packs, and what gc removes while others hold it open.
cd hard-links
tick
echo pushed >pushed
git add pushed
git commit -qm pushed
git push -q origin HEAD:refs/heads/pushed
cd ../copied
git fetch -q
tick
git merge -q origin/pushed
git rev-parse HEAD
git repack -q -a -d -f --depth=50 --window=50
git reflog expire --expire=now --all
git gc -q --prune=now --aggressive
git count-objects -v | grep -E '^(count|in-pack|garbage)'
git fsck --full --strict --no-progress
git multi-pack-index write 2>/dev/null
git commit-graph write --reachable 2>/dev/null
git commit-graph verify
git pack-refs --all
git fsck --full --no-progress
git for-each-ref | md5sum
cd ../mirror.git
git remote update >/dev/null 2>&1
git gc -q --prune=now
git fsck --full --no-progress
cd ..

# Every file that a checkout brings is younger than the index's last look or is read again.
cd over-transport
for i in 1 2 3; do
    git checkout -q HEAD~$i
    test -z "$(git status --porcelain)"
    git diff-files --quiet
done
git checkout -q main
git -c core.ignoreCase=false ls-files -s | md5sum
cd ..

# Commits of several processes at a time; the lock file decides.  A commit may stand although git
# says that it failed: another one held the index when it was to be written anew.
git init -q busy
cd busy
tick
git commit -q --allow-empty -m start
for p in 1 2 3 4; do
    (
        for i in 1 2 3 4 5; do
            echo "$p $i" >f$p
            tries=0
            until { git add f$p && git commit -qm "$p $i" f$p; } >/dev/null 2>&1 ||
                git log --format=%s | grep -qx "$p $i"; do
                tries=$((tries + 1))
                [ $tries -lt 500 ] || exit 1
            done
        done
    ) &
    committers="${committers:-} $!"
done
for p in $committers; do
    wait "$p"
done
git log --format=%s | LC_ALL=C sort -u | md5sum
git fsck --full --strict --no-progress --no-dangling
END

T_plain=$(plain reference)
status=0
unprivileged sh "$T/session" "$T_plain" "$commits" >"$T/expected" 2>&1 || status=$?
is "the session off the mount" $status 0 || note "$(tail -n 5 "$T/expected")"
for who in user root; do
    mkdir "$W/$who"
    if [ $who = user ]; then
        chmod 1777 "$W/$who"
        run=unprivileged
    else
        [ "$(id -u)" = 0 ] || continue
        run=
    fi
    status=0
    $run sh "$T/session" "$W/$who" "$commits" >"$T/got" 2>&1 || status=$?
    is "$who: every command of the session succeeds" $status 0 || note "$(tail -n 5 "$T/got")"
    is "$who: $(wc -l <"$T/got") ids and sums are those of the plain directory" \
        "$(cat "$T/got")" "$(cat "$T/expected")"
    for repository in origin copied busy; do
        same_index=$($run git -c safe.directory='*' -C "$W/$who/$repository" status --porcelain | wc -l)
        is "$who: $repository is unchanged" "$same_index" 0
    done
    # shellcheck disable=SC2154 # tap.sh sets srcdir
    if [ -n "$long" ] && [ -d "$srcdir/.git" ] && [ -z "$run" ]; then
        check "$who: this project's own history, cloned" git -c safe.directory='*' clone -q --no-local \
            "$srcdir" "$W/$who/own"
        check "$who: gc of it" git -C "$W/$who/own" gc -q --aggressive --prune=now
        check "$who: fsck of it" git -C "$W/$who/own" fsck --full --strict --no-progress
    fi
done
remounted "with git's repositories"
for who in user root; do
    [ -d "$W/$who" ] || continue
    for repository in "$W/$who"/*/.git "$W/$who"/mirror.git; do
        check "after a remount: git fsck of ${repository#"$W"/}" \
            git -c safe.directory='*' --git-dir="$repository" fsck --full --strict --no-progress --no-dangling
    done
    check "$who: rm -rf of all" rm -rf "$W/$who"
done
program_end
