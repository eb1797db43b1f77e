/*
 * The rank group of an arena, for Spin: join, form, barrier, exchange (shm/group.go, collective.go; C: group.c, collective.c).
 *
 * Each rank has a record. The member of a rank may leave or die at any step, and a new process then takes the rank.
 *
 *	take       the holder is gone: the word of the record := the new member, still taking
 *	reset      store the other words, then the word := the member waits
 *	form       rank 0: all ranks have members that wait? set the number of the barrier, then admit one after the other
 *	           others: the own word says that this member is admitted
 *	wait       others: until rank 0, which admits itself last, is admitted or has another member
 *	note       rank 0 that has formed the group, and the members of the other ranks; a rank that is not admitted has left
 *	publish    exchange only: store the number of the next barrier beside the bytes
 *	arrive     add 1 to the own number (PAIR) or to the common one; the last one opens the barrier
 *	pass       all have arrived; else a rank's word is not the noted one, or its member is gone: the call fails
 *	collect    exchange only: read the other's number, then check that its word is the noted one
 *
 * A rank whose call fails leaves. It joins again while it has lives left.
 *
 * The proof in short: rank 0 admits a member only when all ranks have members that wait for it. A member of an earlier
 * group does not wait, so all of them have left by then, and no member of two groups counts in one barrier. A member
 * that has taken the rank of another one arrives nowhere before it is admitted. So a number that is high enough proves
 * that a rank of the own group has arrived, even if it has left since.
 *
 * Sizes, to be given with -D: N ranks (2), LIVES of each (2), CALLS in each life (2): an exchange, then a barrier.
 *
 * Variants, in which all claims hold:
 *	PAIR         two ranks have a number each, which only its rank adds to
 *
 * Mutations, with the step that each removes or moves. check.sh lists the claims that it must break.
 *	NO_FORM        the wait until the group is formed
 *	NO_EARLIER     that all ranks have members that wait
 *	NO_NUMBER      that rank 0 sets the number of the barrier
 *	NUMBER_LATE    that the number is set before rank 0, the last one, is admitted
 *	NO_NOTE        the comparison with the members that the rank has noted
 *	COLLECT_FIRST  that the member is checked after its words are read
 *	WAITS_FIRST    that the words of the record are stored before the member waits
 *	ADMIT_BLIND    that rank 0 admits only the member that it has found
 *	NOTE_EARLY     the wait until rank 0, which admits itself last, is admitted
 *
 * Not modelled: the doorbells on which the ranks wait (doorbell.pml); the bits and the number in a word that say which
 * members have left or died; a process that writes false words; the calls that ranks pass on between hosts.
 *
 * REACH asserts that certain situations never occur. Each of these
 * assertions must fail; else the model could pass by doing nothing.
 */

#ifndef N
#define N	2
#endif
#ifndef LIVES
#define LIVES	2
#endif
#ifndef CALLS
#define CALLS	2
#endif

#define TAKEN	1
#define WAITS	2
#define ADMITTED	3

byte state[N], who[N];		/* the word of a record: state and life of its member. One word, in the code too */
bool lives[N];			/* the member's process holds its lock */
bool over[N];			/* the rank has no lives left */
byte mb[N];			/* the other words of the record: the life that has stored them */
byte number[N];			/* PAIR: the barriers that each rank has reached */
byte arrived, opened;		/* else, in ranks */
byte published[N];		/* number of the barrier beside the bytes */
byte bytes[N];			/* 16 * set + call: the bytes of the rank */

byte set;		/* of the last group that was formed */
byte former;			/* the life of the rank 0 that has formed it */
byte setof[N];			/* of the member of each rank */
byte came[(N * LIVES + 1) * N];	/* [set, rank]: calls that it has begun */
#define CAME(s, r)	came[(s) * N + (r)]

/* G1_together. A call that passes has been begun by all ranks of the group.
 * G2_own.      Bytes that are collected are those that a rank of the group has published for this call.
 * G3_words.    A rank that is admitted has stored all words of its record.
 * G4_gone.     A call fails only if the member of a rank has ended, or was not admitted because it had.
 * Deadlock: a call neither passes nor fails although no further rank comes, or ranks wait for each other to form a group. */
hidden byte G1_together, G2_own, G3_words, G4_gone;
#define CLAIM(name, what)	name = (what); assert(name)

#ifdef REACH
hidden byte S1, S2, S3, S4, S5;
#define SEEN(name, what)	name = !(what); assert(name)
#else
#define SEEN(name, what)	skip
#endif

#define OTHERS(i)	for (i : 0 .. N - 1)

#ifdef PAIR
#define LAST	(number[0] > number[1] -> number[0] : number[1])
#define SET_NUMBER(x)	number[0] = x; number[1] = x
#define PASSED	(number[1 - r] >= round)
#else
#define LAST	(((arrived > opened -> arrived : opened) + N - 1) / N)
#define SET_NUMBER(x)	arrived = (x) * N; opened = (x) * N
#define PASSED	(opened >= round * N)
#endif

/* gone: a rank's member is not the one that this rank has noted, or its process has ended. */
#ifdef NO_NOTE
#define GONE(i)	(!lives[i])
#else
#define GONE(i)	(state[i] != ADMITTED || who[i] != noted[i] || !lives[i])
#endif

#define ANY_OVER	(over[0] || over[1] || over[N - 1])

proctype Rank(byte r) {
	byte life, i, round, call, n, mine;
	byte noted[N];
	bool ready, failed;
	do
	:: life < LIVES ->
		life++;
		/* take */
		atomic { !lives[r]; state[r] = TAKEN; who[r] = life; lives[r] = true; setof[r] = 0 };
		failed = false;
#ifdef WAITS_FIRST
		state[r] = WAITS;
#endif
		bytes[r] = 0;
		published[r] = 0;
		mb[r] = life;
#ifndef WAITS_FIRST
		state[r] = WAITS;
#endif
#ifdef NO_FORM
		d_step { round = LAST; state[r] = ADMITTED; set = 1; setof[r] = 1; mine = 1 };
#else
		/* form */
		do
		:: r == 0 ->
			ready = true;
			for (i : 1 .. N - 1) {
				n = state[i];
#ifndef NO_EARLIER
				if :: n != WAITS -> ready = false :: else fi;
#endif
			}
			skip;
			d_step { n = 0; i = 0 };
			if
			:: ready -> break
			:: !ready && ANY_OVER -> failed = true; break
			:: !ready -> (state[1] == WAITS && state[N - 1] == WAITS) || ANY_OVER
			:: life < LIVES -> failed = true; break		/* it gives up, or dies */
			fi
		:: r != 0 ->
			if
			:: state[r] == ADMITTED && who[r] == life -> break
			:: ANY_OVER || life < LIVES -> failed = true; break
			fi
		od;
		if
		:: r == 0 && !failed ->
#ifndef NUMBER_LATE
#ifndef NO_NUMBER
			d_step { n = LAST + 1; SET_NUMBER(n) };
#endif
#endif
			d_step { set++; mine = set; former = life };
			for (i : 1 .. N - 1) {
				n = who[i];
				SEEN(S1, state[i] != WAITS);
#ifdef ADMIT_BLIND
				if
				:: state[i] == WAITS -> d_step { who[i] = n; state[i] = ADMITTED; setof[i] = mine }
				:: else
				fi
#else
				d_step { if :: state[i] == WAITS && who[i] == n -> state[i] = ADMITTED; setof[i] = mine :: else fi }
#endif
			}
			skip;
			d_step { state[0] = ADMITTED; setof[0] = mine; n = 0; i = 0 };
#ifdef NUMBER_LATE
			d_step { n = LAST + 1; SET_NUMBER(n); n = 0 }
#endif
		:: r != 0 && !failed ->
			mine = setof[r];
#ifndef NOTE_EARLY
			/* wait */
			!(state[0] == WAITS && who[0] == former) || !lives[0]
#endif
		:: else
		fi;
#endif
		if
		:: !failed ->
			for (i : 0 .. N - 1) {
				d_step { noted[i] = (state[i] == ADMITTED -> who[i] : 0)
#ifndef NOTE_EARLY
#ifndef NO_FORM
					; if :: i == 0 -> noted[i] = former :: else fi
#endif
#endif
				};
				SEEN(S2, noted[i] == 0)
			}
			skip;
#ifdef PAIR
			d_step { round = number[r]; i = 0 };
#else
			d_step { round = opened / N; i = 0 };
#endif
			call = 0;
			do
			:: call < CALLS && !failed ->
				call++;
				round++;
				if
				:: call % 2 == 1 ->
					bytes[r] = 16 * mine + call;
					published[r] = round
				:: else
				fi;
				if
				:: failed = true; break				/* it leaves, or dies */
				:: true
				fi;
				/* arrive */
				d_step { for (i : 0 .. N - 1) { if :: state[i] == ADMITTED && setof[i] == mine -> CLAIM(G3_words, mb[i] == who[i]) :: else fi }; i = 0; CAME(mine, r) = call
#ifdef PAIR
				; number[r] = round
#else
				; arrived++; n = arrived
#endif
				};
#ifndef PAIR
				if
				:: n % N == 0 -> opened = n
				:: else
				fi;
				n = 0;
#endif
				do
				:: PASSED -> break
				:: !PASSED && (GONE(0) || GONE(1) || GONE(N - 1)) ->
					if
					:: PASSED -> break
					:: else ->
						SEEN(S3, true);
#ifndef NO_FORM
						d_step {
							ready = true;
							for (i : 0 .. N - 1) { ready = ready && lives[i] && setof[i] == mine };
							i = 0;
							CLAIM(G4_gone, !ready);
							ready = false
						};
#endif
						failed = true; break
					fi
				od;
				if
				:: !failed ->
					d_step {
						SEEN(S4, call == CALLS && life == LIVES);
						for (i : 0 .. N - 1) { CLAIM(G1_together, CAME(mine, i) >= call) };
						i = 0
					};
					if
					:: call % 2 == 1 ->
						i = (r + 1) % N;
#ifdef COLLECT_FIRST
						if :: state[i] != ADMITTED || who[i] != noted[i] -> failed = true :: else fi;
#endif
						if :: published[i] != round -> failed = true :: else fi;
						n = bytes[i];
#ifndef COLLECT_FIRST
						if :: state[i] != ADMITTED || who[i] != noted[i] -> failed = true; SEEN(S5, true) :: else fi;
#endif
						d_step { CLAIM(G2_own, failed || n == 16 * mine + call); n = 0; i = 0 };
					:: else
					fi
				:: else
				fi
			:: else -> break
			od
		:: else
		fi;
		skip;
		d_step { lives[r] = false; round = 0; call = 0; i = 0; n = 0; mine = 0; ready = false; failed = false; for (i : 0 .. N - 1) { noted[i] = 0 }; i = 0 }
	:: else -> break
	od;
	over[r] = true
}

init {
	byte i;
	atomic {
		for (i : 0 .. N - 1) { run Rank(i) }
	}
}
