#!/usr/bin/env bash
# Checks the models. Each correct variant must pass, and each mutation must break exactly the claims that the table below
# names. Needs spin and gcc.
#
#	check.sh               all runs; exit status 0 if each of them found the expected claims
#	check.sh trail NAME    the steps of a counterexample of the run NAME (for assertions, a shortest one)
#
# JOBS in the environment is the number of parallel runs; by default one for each processor.
#
# A run finds "nothing" only if its search was complete. Spin and gcc must not complain. The checker must say that it
# searched the whole space with the requested checks, reached no limit, stored states, and counted no error. The runs
# named "self-test" make sure that every other outcome is reported.
set -u -o pipefail
export LC_ALL=C
models=$(cd "$(dirname "$0")" && pwd) || exit 2

two="NEXEC=2 MORTAL=1 NXFER=1 NBIND=2 ONE_SIZE"
twotso="NEXEC=2 MORTAL=0 NXFER=1 NBIND=2 ONE_SIZE TSO"
stop="STOPS N=2 WAITS=1"
dying="OWNER_DIES REJOIN NXFER=1 NBIND=2"

# Each line is a run: name | search | expected findings | macros for the model. The runs below the name of a model are of
# that model. Names are unique. The search is "safety" (assertions and deadlocks) or "liveness" (P4_ends, under weak
# fairness). The words after it change a setting of run; only the self-tests have any.
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
reachable                   | safety   | S1 S2 S3 S4 S5 S6 S7 S8 | REACH $dying
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
self-test: path too long        | safety depth=20         | unfinished    | -
self-test: memory used up       | safety memory=150       | unfinished    | $two
self-test: check switched off   | safety flags=-E         | other search  | -
self-test: claim left out       | liveness cflags=-DNOCLAIM | other search | -
self-test: checker refuses      | safety flags=-Z         | checker failed | -
self-test: no compiler          | safety cflags=-Zz       | not compiled  | -
self-test: no model             | safety                  | not translated | NEXEC=NO_SUCH
self-test: misspelt macro       | safety                  | unknown macro | NO_SUCH

bias.pml
bias                       | safety   | nothing | -
bias, longer               | safety   | nothing | ROUNDS=3
bias, three                | safety   | nothing | N=3
bias, again                | safety   | nothing | AGAIN ROUNDS=3
bias, moves                | safety   | nothing | MOVES ROUNDS=3
bias, moves, again         | safety   | nothing | MOVES AGAIN
bias, reachable            | safety   | S1 S2 S3 S4 S5 S6 S7 S8 | REACH
bias, NO_HEAVY             | safety   | O1_alone O2_seen O3_woken deadlock | NO_HEAVY
bias, HEAVY_FIRST          | safety   | O1_alone O2_seen O3_woken deadlock | HEAVY_FIRST
bias, NO_SECOND_LOAD       | safety   | O1_alone O2_seen O3_woken deadlock | NO_SECOND_LOAD
bias, NO_WAIT              | safety   | O1_alone O2_seen O3_woken deadlock | NO_WAIT
bias, SHARED_FLAG          | safety   | O1_alone O2_seen O3_woken deadlock | SHARED_FLAG ROUNDS=3
bias, FORGET_REVOKED               | safety   | O1_alone O2_seen O3_woken deadlock | FORGET_REVOKED ROUNDS=3
bias, NO_HELD_CHECK              | safety   | O1_alone O2_seen O3_woken deadlock | NO_HELD_CHECK AGAIN
bias, NO_BACK_OFF         | safety   | deadlock | NO_BACK_OFF
bias, UNLOCK_FIRST            | safety   | O2_seen O3_woken | UNLOCK_FIRST
bias, PLAIN_ARM            | safety   | nothing | PLAIN_ARM ROUNDS=3
bias, CHECK_FIRST           | safety   | O3_woken | CHECK_FIRST
bias, NO_LOCK              | safety   | O3_woken | NO_LOCK
bias, library              | safety   | nothing | LIBRARY ROUNDS=3
bias, library, three       | safety   | nothing | LIBRARY N=3
bias, library, reachable   | safety   | S1 S2 S3 S4 S6 S7 S8 S9 | LIBRARY REACH ROUNDS=3
bias, library, NO_HEAVY    | safety   | O1_alone O2_seen O3_woken deadlock | LIBRARY NO_HEAVY
bias, library, NO_WAIT     | safety   | O1_alone O2_seen O3_woken | LIBRARY NO_WAIT
bias, library, SHARED_FLAG | safety   | O1_alone O2_seen O3_woken | LIBRARY SHARED_FLAG ROUNDS=3
bias, library, SLOW_LATE   | safety   | deadlock | LIBRARY SLOW_LATE

doorbell.pml
doorbell                        | safety   | nothing | -
doorbell, two                   | safety   | nothing | N=2
doorbell, strict                | safety   | nothing | STRICT NO_HEAVY
doorbell, reachable             | safety   | S1 S2 S3 S4 S5 S6 | REACH N=2 MESSAGES=1
doorbell, NO_HEAVY              | safety   | D1_woken | NO_HEAVY
doorbell, CHECK_EARLY            | safety   | D1_woken | CHECK_EARLY
doorbell, HEAVY_EARLY           | safety   | D1_woken | HEAVY_EARLY
doorbell, LOAD_FIRST            | safety   | D1_woken | LOAD_FIRST
doorbell, NO_RING               | safety   | D1_woken | NO_RING
doorbell, NO_TICKET             | safety   | D1_woken | NO_TICKET
doorbell, DISARM_ALWAYS         | safety   | D1_woken | DISARM_ALWAYS N=2 MESSAGES=1
doorbell, WAKE_ONE              | safety   | D1_woken | WAKE_ONE N=2 MESSAGES=1

teardown.pml
teardown                         | safety   | nothing | -
teardown, strict                 | safety   | nothing | STRICT NO_HEAVY FORCED
teardown, calls                  | safety   | nothing | CALLS FORCED
teardown, active dies            | safety   | nothing | MORTAL=0 FORCED
teardown, passive dies           | safety   | nothing | MORTAL=1 FORCED
teardown, reachable              | safety   | S1 S2 S3 S4 | REACH
teardown, calls, reachable       | safety   | S7 | REACH CALLS FORCED
teardown, death, reachable       | safety   | S1 S2 S3 S4 S5 S6 | REACH MORTAL=0 FORCED
teardown, NO_HEAVY               | safety   | E1_found | NO_HEAVY FORCED
teardown, CHECK_EARLY             | safety   | E1_found | CHECK_EARLY FORCED
teardown, HEAVY_EARLY            | safety   | E1_found | HEAVY_EARLY FORCED
teardown, STATE_FIRST            | safety   | E1_found | STATE_FIRST FORCED
teardown, NO_LAST_CHECK                | safety   | E1_found | NO_LAST_CHECK FORCED
teardown, DISCONNECT_UNSEEN            | safety   | E1_found E4_alone | DISCONNECT_UNSEEN
teardown, NO_HAZARD              | safety   | E4_alone | NO_HAZARD FORCED
teardown, FREE_AT_ONCE           | safety   | E2_touch | FREE_AT_ONCE FORCED
teardown, LEAVE_ONCE             | safety   | E2_touch | LEAVE_ONCE FORCED
teardown, BOTH_LAST              | safety   | E3_freed deadlock | BOTH_LAST FORCED
teardown, DETACH_EARLY           | safety   | E2_touch | DETACH_EARLY
teardown, WHILE_CLOSING          | safety   | E2_touch | WHILE_CLOSING
teardown, SPLIT                  | safety   | E2_touch | SPLIT CALLS FORCED
teardown, CHECK_FIRST            | safety   | E2_touch | CHECK_FIRST CALLS FORCED
teardown, NO_DEATH_CHECK                | safety   | E2_touch E3_freed deadlock | NO_DEATH_CHECK MORTAL=0 FORCED
teardown, NO_PEER_DEATH            | safety   | E2_touch | NO_PEER_DEATH MORTAL=0 FORCED
teardown, NO_LOST                | safety   | E2_touch | NO_LOST MORTAL=0 FORCED
teardown, TWO_STEPS                  | safety   | E2_touch | TWO_STEPS MORTAL=0 FORCED

doorbells.pml
doorbells                       | safety   | nothing | -
doorbells, held                 | safety   | nothing | HELD
doorbells, stop                 | safety   | nothing | $stop
doorbells, reachable            | safety   | S1 S3 S4 S5 S6 S7 | REACH HELD
doorbells, stop, reachable      | safety   | S1 S2 S4 S5 S6 | REACH $stop
doorbells, NO_ENGINE            | safety   | D2_served | NO_ENGINE
doorbells, RANG_ANYWAY          | safety   | D2_served | RANG_ANYWAY
doorbells, NO_LAST_CHECK         | safety   | D2_served | NO_LAST_CHECK
doorbells, NO_ENGINE_RING         | safety   | D2_served | NO_ENGINE_RING HELD
doorbells, ONE_MARK             | safety   | D2_served | ONE_MARK $stop
doorbells, TRUST_MARK           | safety   | D2_served | TRUST_MARK $stop

reclaim.pml
reclaim                     | safety   | nothing | -
reclaim, mortal             | safety   | nothing | MORTAL
reclaim, earlier death      | safety   | nothing | EARLIER
reclaim, false mark         | safety   | nothing | FALSE_MARK
reclaim, two lives          | safety   | nothing | LIVES=2
reclaim, COUNT_FIRST        | safety   | R1_touch | COUNT_FIRST
reclaim, NO_WAIT            | safety   | R1_touch | NO_WAIT
reclaim, CONNECT_EARLY      | safety   | R1_touch | CONNECT_EARLY
reclaim, SEEN_LATE          | safety   | R1_touch | SEEN_LATE LIVES=2 ALONE
reclaim, SLOTS_EARLY        | safety   | R1_touch | SLOTS_EARLY EARLIER
reclaim, STALE_EPOCH        | safety   | R1_touch | STALE_EPOCH LIVES=2
reclaim, NO_SECOND_CHECK     | safety   | R1_touch | NO_SECOND_CHECK LIVES=2
reclaim, reachable          | safety   | S1 S2 S3 S4 S5 | REACH MORTAL FALSE_MARK
reclaim, NO_LOCK            | safety   | R2_own R3_back | NO_LOCK FALSE_MARK
reclaim, NO_COUNT           | safety   | R3_back deadlock | NO_COUNT MORTAL
reclaim, KEEP_DEAD          | safety   | R3_back deadlock | KEEP_DEAD MORTAL

number.pml
number                      | safety   | nothing | -
number, full                | safety   | nothing | FULL
number, active dies         | safety   | nothing | MORTAL=0
number, passive dies        | safety   | nothing | MORTAL=1
number, reachable           | safety   | S1 S2 S4 S5 | REACH
number, death, reachable    | safety   | S1 S2 S3 S4 | REACH MORTAL=0
number, LOAD_FIRST          | safety   | N4_meet | LOAD_FIRST
number, NO_RING             | safety   | N4_meet | NO_RING
number, NO_REFUSED          | safety   | N1_one | NO_REFUSED FULL
number, LATE                | safety   | N4_meet | LATE
number, NO_RETURN           | safety   | N4_meet | NO_RETURN
number, NO_WITHDRAW         | safety   | N3_freed N4_meet | NO_WITHDRAW
number, NO_LOOK             | safety   | N4_meet | NO_LOOK
number, NO_DEATH            | safety   | N4_meet | NO_DEATH MORTAL=0
number, NO_DONE             | safety   | N3_freed | NO_DONE

group.pml
group                       | safety   | nothing | -
group, pair                 | safety   | nothing | PAIR
group, three                | safety   | nothing | N=3
group, three lives          | safety   | nothing | LIVES=3
group, pair, three lives    | safety   | nothing | PAIR LIVES=3
group, reachable            | safety   | S1 S2 S3 S4 S5 | REACH
group, pair, reachable      | safety   | S1 S2 S3 S4 S5 | REACH PAIR
group, NO_FORM              | safety   | G1_together | NO_FORM
group, pair, NO_FORM        | safety   | G1_together | NO_FORM PAIR
group, NO_EARLIER           | safety   | G1_together G2_own | NO_EARLIER
group, NO_NUMBER            | safety   | G1_together | NO_NUMBER
group, pair, NO_NUMBER      | safety   | G1_together | NO_NUMBER PAIR
group, NUMBER_LATE          | safety   | G1_together | NUMBER_LATE
group, pair, NUMBER_LATE    | safety   | G1_together | NUMBER_LATE PAIR
group, NO_NOTE              | safety   | deadlock | NO_NOTE
group, COLLECT_FIRST        | safety   | G2_own | COLLECT_FIRST
group, WAITS_FIRST          | safety   | G3_words | WAITS_FIRST
group, ADMIT_BLIND          | safety   | G3_words G4_gone deadlock | ADMIT_BLIND
group, NOTE_EARLY           | safety   | G4_gone | NOTE_EARLY
group, pair, NOTE_EARLY     | safety   | G4_gone | NOTE_EARLY PAIR
END
)

# translate MODEL MACROS...: makes spin's C files in the working directory. Prints the reason if it fails.
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

# result SEARCH: the findings of the checker, from pan.out.
result() {
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
		*NEXEC=2* | *OWNER_DIES* | *TSO* | *N=[23]* | *LIVES=2* | *MORTAL=[01]* | *WHILE_CLOSING*) optimise=-O1 ;; # worth its compile time for large searches only
		esac
		# -c0: past the first error, so that all broken claims show. -b: a path cut short is an error.
		if ! gcc -w $optimise -DMEMLIM="$memory" $cflags -o pan pan.c >gcc.out 2>&1; then
			found="not compiled"
		elif ./pan -c0 -b -n -w22 -m"$depth" $flags >pan.out 2>&1 || grep -q MEMLIM pan.out; then
			found=$(result "$2")
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
		sed -n -e '/[DEGOP][0-9]_[a-z]* = /d' -e '/\[k\]\|\.count = /d' -e '/CYCLE/p' -e '/failed assertion/{' -e p -e ':rest' -e n -e 'b rest' -e '}' \
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

# Each worker takes the next run that no other has taken. Results are printed in the table's order.
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
		outcome=ok passed=$((passed + 1))
	else
		outcome=FAIL failed=$((failed + 1))
	fi
	printf '%-4s %-26s %-46s %-46s %9s\n' $outcome "${names[i]}" "${wanted[i]}" "$found" "${states:--}"
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -eq ${#names[@]} ]
