#!/usr/bin/env bash
# Checks the models: of the invalidation handshake, of the asymmetric mutex, of the doorbell and the end of a connection,
# of the two bells, of the reclaim after a death.
# The correct protocol has to pass, and every mutation has to break exactly the claims that the table below names. Needs
# spin and gcc.
#
#	check.sh               all runs; exit status 0 if each of them found what it should
#	check.sh trail NAME    the steps of a counterexample of the run NAME (for assertions, a shortest one)
#
# JOBS in the environment sets how many runs go on at once.
#
# "nothing" is reported only on evidence of a finished search: spin and gcc had no complaint, the checker says that it
# searched the whole space with the checks that were asked for, it hit no limit, it stored states, and it counted no
# error. Whatever else happens is a finding too, and the runs named "judge" make sure that it is seen.
set -u -o pipefail
export LC_ALL=C
models=$(cd "$(dirname "$0")" && pwd) || exit 2

two="NEXEC=2 MORTAL=1 NXFER=1 NBIND=2 ONE_SIZE"
twotso="NEXEC=2 MORTAL=0 NXFER=1 NBIND=2 ONE_SIZE TSO"
stop="STOPS N=2 WAITS=1"
dying="OWNER_DIES REJOIN NXFER=1 NBIND=2"

# A run a line: name | search | what it has to find | macros for the model. The runs below the name of a model are its
# own; their names are theirs alone. The search is "safety" (assertions and deadlocks) or "liveness" (P4_ends, under weak fairness); what follows it changes a setting of run(), and only the
# judge's own tests do that.
table=$(sed 's/[[:space:]]*|[[:space:]]*/|/g' <<END
invalidate.pml
base                        | safety   | nothing | -
base, ends                  | liveness | nothing | -
two queue pairs             | safety   | nothing | $two
two queue pairs, ends       | liveness | nothing | $two
store buffers               | safety   | nothing | TSO
store buffers, ends         | liveness | nothing | TSO
two and buffers             | safety   | nothing | $twotso
members rejoin              | safety   | nothing | REJOIN
members rejoin, ends        | liveness | nothing | REJOIN
owner dies                  | safety   | nothing | $dying
owner dies, ends            | liveness | nothing | $dying
hazards appear              | safety   | nothing | GROWS
witnesses                   | safety   | W1 W2 W3 W4 W5 W6 W7 W8 | WITNESS $dying
NO_PUBLISH                  | safety   | P1_kept P1_touch P3_range | NO_PUBLISH
NO_CHECK                    | safety   | P1_kept P1_touch P3_range | NO_CHECK NXFER=1
CHECK_FIRST                 | safety   | P1_kept P1_touch P3_range | CHECK_FIRST
FIELDS_FIRST                | safety   | P1_kept P3_range | FIELDS_FIRST
NO_BOUNDS                   | safety   | P3_range | NO_BOUNDS
NO_RECHECK                  | safety   | P2_strict P4_chunk | NO_RECHECK
NO_RECHECK_BETWEEN          | safety   | P4_chunk | NO_RECHECK_BETWEEN
NO_RECHECK_LAST             | safety   | P2_strict | NO_RECHECK_LAST
EARLY_CLEAR                 | safety   | P1_kept P1_touch | EARLY_CLEAR
NO_CLEAR                    | liveness | P4_ends | NO_CLEAR
NO_TEARDOWN                 | liveness | P4_ends | NO_TEARDOWN
NO_TEARDOWN with PEEK       | liveness | nothing | NO_TEARDOWN PEEK
NO_STORE                    | safety   | P1_kept P1_touch P2_clean P2_strict P3_range P4_chunk | NO_STORE NXFER=1
NO_STORE_FIRST              | safety   | P1_kept P1_touch P3_range | NO_STORE_FIRST
NO_DRAIN                    | safety   | P1_kept P1_touch P3_range | NO_DRAIN
DRAIN_ONE                   | safety   | P1_kept P1_touch P3_range | DRAIN_ONE ${two/MORTAL=1/MORTAL=0}
NO_TAG                      | safety   | P1_touch P2_clean P2_strict P3_range P4_chunk | NO_TAG
TAG_WRAP                    | safety   | P1_touch P2_clean P2_strict P4_chunk | TAG_WRAP
WORD_FIRST                  | safety   | P1_kept P3_range | WORD_FIRST
NO_DEATH                    | liveness | P4_ends | NO_DEATH
LOCK_EARLY                  | safety   | P1_kept P1_touch P3_range | LOCK_EARLY
PLAIN_PUBLISH               | safety   | P1_kept P1_touch P3_range | PLAIN_PUBLISH TSO NXFER=1
PLAIN_INVALIDATE            | safety   | P1_kept P1_touch P2_clean P2_strict P3_range P4_chunk | PLAIN_INVALIDATE TSO NXFER=1 NBIND=2
DIRTY_JOIN                  | liveness | P4_ends | DIRTY_JOIN REJOIN
COUNT_FIRST                 | safety   | P1_kept P1_touch P3_range | COUNT_FIRST GROWS
LOSE_TAG                    | safety   | P1_kept P1_touch | LOSE_TAG $dying
NO_DRAIN, NO_RECHECK        | safety   | P1_kept P1_touch P2_clean P2_strict P3_range P4_chunk | NO_DRAIN NO_RECHECK NXFER=1
EARLY_CLEAR, NO_RECHECK     | safety   | P1_kept P1_touch P2_clean P2_strict P4_chunk | EARLY_CLEAR NO_RECHECK NXFER=1
judge: path too long        | safety depth=20         | unfinished    | -
judge: memory used up       | safety memory=150       | unfinished    | $two
judge: check switched off   | safety flags=-E         | other search  | -
judge: claim left out       | liveness cflags=-DNOCLAIM | other search | -
judge: checker refuses      | safety flags=-Z         | checker failed | -
judge: no compiler          | safety cflags=-Zz       | not compiled  | -
judge: no model             | safety                  | not translated | NEXEC=NO_SUCH
judge: misspelt macro       | safety                  | unknown macro | NO_SUCH

bias.pml
owner                       | safety   | nothing | -
owner, longer               | safety   | nothing | ROUNDS=3
owner, three                | safety   | nothing | N=3
owner, again                | safety   | nothing | AGAIN ROUNDS=3
owner, moves                | safety   | nothing | MOVES ROUNDS=3
owner, moves, again         | safety   | nothing | MOVES AGAIN
owner, witnesses            | safety   | W1 W2 W3 W4 W5 W6 W7 W8 | WITNESS
owner, NO_HEAVY             | safety   | O1_alone O2_seen O3_woken deadlock | NO_HEAVY
owner, HEAVY_FIRST          | safety   | O1_alone O2_seen O3_woken deadlock | HEAVY_FIRST
owner, NO_SECOND_LOOK       | safety   | O1_alone O2_seen O3_woken deadlock | NO_SECOND_LOOK
owner, NO_WAIT              | safety   | O1_alone O2_seen O3_woken deadlock | NO_WAIT
owner, SHARED_FLAG          | safety   | O1_alone O2_seen O3_woken deadlock | SHARED_FLAG ROUNDS=3
owner, FORGET               | safety   | O1_alone O2_seen O3_woken deadlock | FORGET ROUNDS=3
owner, NO_SELF              | safety   | O1_alone O2_seen O3_woken deadlock | NO_SELF AGAIN
owner, NO_STEP_BACK         | safety   | deadlock | NO_STEP_BACK
owner, OUT_FIRST            | safety   | O2_seen O3_woken | OUT_FIRST
owner, PLAIN_ARM            | safety   | nothing | PLAIN_ARM ROUNDS=3
owner, LOOK_FIRST           | safety   | O3_woken | LOOK_FIRST
owner, NO_LOCK              | safety   | O3_woken | NO_LOCK

doorbell.pml
bell                        | safety   | nothing | -
bell, two                   | safety   | nothing | N=2
bell, strict                | safety   | nothing | STRICT NO_HEAVY
bell, witnesses             | safety   | W1 W2 W3 W4 W5 W6 | WITNESS N=2 MESSAGES=1
bell, NO_HEAVY              | safety   | D1_woken | NO_HEAVY
bell, LOOK_EARLY            | safety   | D1_woken | LOOK_EARLY
bell, HEAVY_EARLY           | safety   | D1_woken | HEAVY_EARLY
bell, HEAR_FIRST            | safety   | D1_woken | HEAR_FIRST
bell, NO_RING               | safety   | D1_woken | NO_RING
bell, NO_TICKET             | safety   | D1_woken | NO_TICKET
bell, DISARM_ALWAYS         | safety   | D1_woken | DISARM_ALWAYS N=2 MESSAGES=1
bell, WAKE_ONE              | safety   | D1_woken | WAKE_ONE N=2 MESSAGES=1

ending.pml
end                         | safety   | nothing | -
end, strict                 | safety   | nothing | STRICT NO_HEAVY FORCED
end, calls                  | safety   | nothing | CALLS FORCED
end, active dies            | safety   | nothing | MORTAL=0 FORCED
end, passive dies           | safety   | nothing | MORTAL=1 FORCED
end, witnesses              | safety   | W1 W2 W3 W4 | WITNESS
end, calls, witnesses       | safety   | W7 | WITNESS CALLS FORCED
end, death, witnesses       | safety   | W1 W2 W3 W4 W5 W6 | WITNESS MORTAL=0 FORCED
end, NO_HEAVY               | safety   | E1_found | NO_HEAVY FORCED
end, LOOK_EARLY             | safety   | E1_found | LOOK_EARLY FORCED
end, HEAVY_EARLY            | safety   | E1_found | HEAVY_EARLY FORCED
end, STATE_FIRST            | safety   | E1_found | STATE_FIRST FORCED
end, NO_LOOK                | safety   | E1_found | NO_LOOK FORCED
end, LEFT_UNSEEN            | safety   | E1_found E4_alone | LEFT_UNSEEN
end, NO_HAZARD              | safety   | E4_alone | NO_HAZARD FORCED
end, FREE_AT_ONCE           | safety   | E2_touch | FREE_AT_ONCE FORCED
end, LEAVE_ONCE             | safety   | E2_touch | LEAVE_ONCE FORCED
end, BOTH_LAST              | safety   | E3_freed deadlock | BOTH_LAST FORCED
end, LET_GO_EARLY           | safety   | E2_touch | LET_GO_EARLY
end, WHILE_CLOSING          | safety   | E2_touch | WHILE_CLOSING
end, SPLIT                  | safety   | E2_touch | SPLIT CALLS FORCED
end, CHECK_FIRST            | safety   | E2_touch | CHECK_FIRST CALLS FORCED
end, NO_GONE                | safety   | E2_touch E3_freed deadlock | NO_GONE MORTAL=0 FORCED
end, NO_BEREAVED            | safety   | E2_touch | NO_BEREAVED MORTAL=0 FORCED
end, NO_LOST                | safety   | E2_touch | NO_LOST MORTAL=0 FORCED
end, APART                  | safety   | E2_touch | APART MORTAL=0 FORCED

doorbells.pml
bells                       | safety   | nothing | -
bells, held                 | safety   | nothing | HELD
bells, stop                 | safety   | nothing | $stop
bells, witnesses            | safety   | W1 W3 W4 W5 W6 W7 | WITNESS HELD
bells, stop, witnesses      | safety   | W1 W2 W4 W5 W6 | WITNESS $stop
bells, NO_ENGINE            | safety   | D2_served | NO_ENGINE
bells, RANG_ANYWAY          | safety   | D2_served | RANG_ANYWAY
bells, NO_LAST_LOOK         | safety   | D2_served | NO_LAST_LOOK
bells, NO_HAND_OVER         | safety   | D2_served | NO_HAND_OVER HELD
bells, ONE_MARK             | safety   | D2_served | ONE_MARK $stop
bells, TRUST_MARK           | safety   | D2_served | TRUST_MARK $stop

reclaim.pml
reclaim                     | safety   | nothing | -
reclaim, mortal             | safety   | nothing | MORTAL
reclaim, false mark         | safety   | nothing | FALSE_MARK
reclaim, two lives          | safety   | nothing | LIVES=2
reclaim, COUNT_FIRST        | safety   | R1_touch | COUNT_FIRST
reclaim, NO_WAIT            | safety   | R1_touch | NO_WAIT
reclaim, CONNECT_EARLY      | safety   | R1_touch | CONNECT_EARLY
reclaim, SEEN_LATE          | safety   | R1_touch | SEEN_LATE LIVES=2 ALONE
reclaim, STALE_EPOCH        | safety   | R1_touch | STALE_EPOCH LIVES=2
reclaim, NO_SECOND_LOOK     | safety   | R1_touch | NO_SECOND_LOOK LIVES=2
reclaim, witnesses          | safety   | W1 W2 W3 W4 W5 | WITNESS MORTAL FALSE_MARK
reclaim, NO_LOCK            | safety   | R2_own R3_back | NO_LOCK FALSE_MARK
reclaim, NO_COUNT           | safety   | R3_back deadlock | NO_COUNT MORTAL
reclaim, KEEP_DEAD          | safety   | R3_back deadlock | KEEP_DEAD MORTAL
END
)

# translate MODEL MACROS...: spin's C files, in the working directory. Prints what went wrong.
translate() {
	local model=$models/$1 m
	shift
	for m; do
		if ! grep -Eq "^#[a-z]+.*[^A-Z_]${m%%=*}([^A-Z_]|\$)" "$model"; then
			echo "unknown macro"
			return 1
		fi
	done
	if ! spin -a "${@/#/-D}" "$model" >spin.out 2>&1 || grep -Eiq 'error|warning' spin.out || ! [ -s pan.c ]; then
		echo "not translated"
		return 1
	fi
}

# judge SEARCH: what the checker found, from pan.out.
judge() {
	local errors found
	if ! grep -q '^Full statespace search for:' pan.out; then
		echo "checker failed"
	elif grep -Eiq 'max search depth|depth limit|memlim|out of memory|not completed|time limit|abort' pan.out; then
		echo "unfinished"
	elif ! grep -Eq '^ *[1-9][0-9]* states, stored' pan.out; then
		echo "unfinished"
	elif [ "$1" = safety ] &&
		! { grep -Eq 'assertion violations[[:space:]]+\+$' pan.out &&
			grep -Eq 'invalid end states[[:space:]]+\+$' pan.out; }; then
		echo "other search"
	elif [ "$1" = liveness ] &&
		! { grep -Eq 'never claim[[:space:]]+\+ \(P4_ends\)$' pan.out &&
			grep -Eq 'acceptance +cycles[[:space:]]+\+ \(fairness enabled\)$' pan.out; }; then
		echo "other search"
	else
		errors=$(sed -n 's/^State-vector .*, errors: //p' pan.out)
		found=$(sed -n 's/^pan:[0-9]*: \(.*\) (at depth [0-9]*)$/\1/p' pan.out |
			sed -e 's/^assertion violated //' -e 's/^acceptance cycle$/P4_ends/' -e 's/^invalid end state$/deadlock/' | sort -u | paste -s -d ' ' -)
		case $errors:$found in
		0:) echo "nothing" ;;
		[1-9]*:?*) echo "$found" ;;
		*) echo "contradiction" ;;
		esac
	fi
}

# run NUMBER SEARCH SETTINGS MODEL MACROS: leaves "found|states" in the file NUMBER.
run() {
	local depth=20000 memory=2000 flags='' cflags='' optimise=-O0 found='' setting
	for setting in $3; do
		local "$setting"
	done
	mkdir "$work/$1.d" && cd "$work/$1.d" || return
	if found=$(translate "$4" $5); then
		case $2 in
		safety) cflags="-DSAFETY -DNOCLAIM $cflags" flags="$flags" ;;
		liveness) cflags="-DNFAIR=3 $cflags" flags="-a -f -A $flags" ;;
		esac
		case $5 in
		*NEXEC=2* | *OWNER_DIES* | *TSO* | *N=[23]* | *LIVES=2* | *MORTAL=[01]* | *WHILE_CLOSING*) optimise=-O1 ;; # pays for large searches only
		esac
		# -c0: past the first error, so that all broken claims show. -b: a path cut short is an error.
		if ! gcc -w $optimise -DMEMLIM="$memory" $cflags -o pan pan.c >gcc.out 2>&1; then
			found="not compiled"
		elif ./pan -c0 -b -n -w22 -m"$depth" $flags >pan.out 2>&1 || grep -q MEMLIM pan.out; then
			found=$(judge "$2")
		else
			found="checker failed"
		fi
	fi
	echo "$found|$(sed -n 's/^ *\([0-9][0-9]*\) states, stored.*/\1/p' pan.out 2>/dev/null)" >"$work/$1.part"
	cd "$work" && rm -rf "$1.d" && mv "$1.part" "$1"
}

# trail SEARCH MODEL MACROS: the steps of a counterexample that touch shared memory, a member's life or a claim.
trail() {
	local search=$1 model=$2
	set -- $3
	cd "$work" && translate "$model" "$@" || return
	case $search in
	safety) gcc -w -DSAFETY -DNOCLAIM -DREACH -o pan pan.c && ./pan -n -i -m20000 >pan.out ;;
	liveness) gcc -w -DNFAIR=3 -o pan pan.c && ./pan -n -a -f -A -m20000 >pan.out ;;
	esac
	if ! [ -s "$model.trail" ]; then
		echo "no counterexample"
		return 1
	fi
	spin -t -k "$model.trail" -p "${@/#/-D}" "$models/$model" 2>&1 |
		sed -n -e '/[DEOP][0-9]_[a-z]* = /d' -e '/\[k\]\|\.count = /d' -e '/CYCLE/p' -e '/failed assertion/{' -e p -e ':rest' -e n -e 'b rest' -e '}' \
			-e 's/:.*proc *\([0-9]*\) (\([A-Za-z]*\)[^)]*) [^ ]*:\([0-9]*\) (state [0-9]*)[^[]*/ \2 \1, line \3: /' \
			-e '/\[.*\(M\[\|epoch =\|running\|lock\|failed =\|invalidating =\|buffer\|mu =\|holders\|pushes\|seen =\|slot\|armed\|rings\|asleep\|closed\|delivered\|found =\)/p'
}

for tool in spin gcc; do
	if ! command -v $tool >/dev/null; then
		echo "check.sh: $tool is not installed" >&2
		exit 2
	fi
done
jobs=${JOBS:-$(getconf _NPROCESSORS_ONLN)}
work=$(mktemp -d) || exit 2
trap 'for p in $(jobs -p); do kill -- "-$p" 2>/dev/null; done; wait; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP

names=() searches=() wanted=() macros=() of=()
while IFS='|' read -r n s f m; do
	case $n in
	'') continue ;;
	*.pml) model=$n && continue ;;
	esac
	of+=("$model") names+=("$n") searches+=("$s") wanted+=("$f") macros+=("${m#-}")
done <<<"$table"

if [ "${1-}" = trail ]; then
	for i in "${!names[@]}"; do
		if [ "${names[i]}" = "${2-}" ]; then
			trail "${searches[i]%% *}" "${of[i]}" "${macros[i]}"
			exit
		fi
	done
	echo "check.sh: no run is named '${2-}'" >&2
	exit 2
elif [ $# -gt 0 ]; then
	echo "usage: check.sh [trail NAME]" >&2
	exit 2
fi

# Each worker takes the next run that nobody has taken; results are printed in the table's order.
set -m
for ((w = 0; w < jobs; w++)); do
	for i in "${!names[@]}"; do
		mkdir "$work/$i.taken" 2>/dev/null || continue
		run "$i" "${searches[i]%% *}" "$(cut -s -d ' ' -f 2- <<<"${searches[i]}")" "${of[i]}" "${macros[i]}"
	done &
done
set +m
passed=0 failed=0
printf '     %-26s %-46s %-46s %9s\n' run expected found states
for i in "${!names[@]}"; do
	while ! [ -e "$work/$i" ]; do
		[ -n "$(jobs -rp)" ] || [ -e "$work/$i" ] || echo "not run|" >"$work/$i"
		sleep 0.05
	done
	IFS='|' read -r found states <"$work/$i"
	if [ "$found" = "${wanted[i]}" ]; then
		verdict=ok passed=$((passed + 1))
	else
		verdict=FAIL failed=$((failed + 1))
	fi
	printf '%-4s %-26s %-46s %-46s %9s\n' $verdict "${names[i]}" "${wanted[i]}" "$found" "${states:--}"
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -eq ${#names[@]} ]
