/*
 * Connecting by number, for Spin: two endpoints that name each other's numbers (c/src/endpoint/cm_number.c).
 *
 * Each number has a shared entry. The side with the higher number makes the connection record and sends it. The other accepts or
 * refuses it. Either endpoint may reset at any time, and a new one may come under the same number. Either process may die, or never come.
 *
 *	become_ready, both   use := next; word := ready; load the other's word and use
 *	        higher       the other is ready, and this use of it has not refused? make a record, send it
 *	        lower        the other is ready? ring it
 *	step, higher         accepted: state := established, word := connected; refused or aborted: forget it, look at the other's word again
 *	step, lower          established: connected; withdrawn, or the other is dead: forget it, become_ready with the same use
 *	request, lower       it waits? word := connected, state := accepted; else state := refused
 *	leave, both          word := reset; state := withdrawn (higher) or aborted (lower, and both once it is established)
 *	release              lower: done := true after the last use of the record; higher: wait for that, free the record
 *
 * The proof in short: each side stores its word and then loads the other's, so one of them sees that both are ready. If that is the
 * lower one, it rings. A side that waits again takes the same two steps. Only the higher side makes records. The lower one shows that it
 * is connected before it accepts, so the next endpoint of the higher side makes no record for that use of its number.
 *
 * Sizes, to be given with -D: LIVES of each side's number (2).
 *
 * Variants, in which all claims hold:
 *	FULL    the lower side may refuse although it waits, because it has no memory. Then the two do not meet
 *	MORTAL  the process of side MORTAL (0 has the higher number) may die
 *
 * Mutations, with the step that each removes or moves. check.sh lists the claims that it must break.
 *	LOAD_FIRST     that a side stores its word before it loads the other's
 *	NO_RING        the ring of the lower side
 *	NO_REFUSED     that the higher side sends no record to a use that has refused one (FULL)
 *	LATE           that the lower side shows that it is connected before it accepts
 *	NO_RETURN      that the lower side becomes ready again
 *	NO_WITHDRAW    the withdrawal of a record
 *	NO_LOOK        that the higher side looks at the word again after a refusal
 *	NO_DEATH       that the lower side gives up a record of a dead process (MORTAL)
 *	NO_DONE        that a record that comes too late is given back
 *
 * Not modelled: the doorbells (doorbell.pml); the end of an established connection (teardown.pml); when a dead process's memory is given
 * back (reclaim.pml); a process that writes false words; time-outs.
 *
 * REACH asserts that certain situations never occur. Each of these assertions must fail; else the model could pass by doing nothing.
 */

#ifndef LIVES
#define LIVES	2
#endif
#define RECORDS	(LIVES * LIVES + 1)
#define NONE	255

#define RESET	0	/* words of an entry */
#define READY	1
#define CONNECTED	2

#define FREE	0	/* states of a record */
#define REQUESTED	1
#define ACCEPTED	2
#define ESTABLISHED	3
#define REFUSED	4
#define WITHDRAWN	5
#define ABORTED	6

#define IDLE	0	/* states of a side */
#define WAITS	1
#define ASKS	2	/* higher: its record is with the other side */
#define ACCEPTS	3	/* lower: it has accepted one */
#define JOINED	4
#define LOST	5

byte word[2], use[2];			/* a use of the lower side's number is an endpoint that had it */
byte state[RECORDS], by[RECORDS], aim[RECORDS];	/* aim: the use of the lower side's number for which it was made */
bool done[RECORDS];
byte records;
chan inbox = [RECORDS] of { byte };
bool rung[2], dead[2];

byte does[2], life[2], conn[2];		/* private */
bool stays[2];				/* its present endpoint never leaves */

/* N1_one.   There are no two records for one pair of endpoints.
 * N2_pair.  A connection that becomes established is that of both present endpoints.
 * N3_freed. At rest, every record is freed, apart from that of a connection.
 * N4_meet.  At rest, no two endpoints wait for each other, and none waits for an answer. */
hidden byte N1_one, N2_pair, N3_freed, N4_meet;
#define CLAIM(name, what)	name = (what); assert(name)

#ifdef REACH
hidden byte S1, S2, S3, S4, S5;
#define SEEN(name, what)	name = !(what); assert(name)
#else
#define SEEN(name, what)	skip
#endif

bool made[(LIVES + 1) * (LIVES + 1)];

/* step_higher: the higher side checks its record, and the other's word. */
inline step_higher() {
	do
	:: does[0] == ASKS ->
		r = conn[0];
		d_step {
			s = state[r];
			if
			:: s == ACCEPTED && !dead[1] ->
				state[r] = ESTABLISHED;
				CLAIM(N2_pair, conn[1] == r && does[1] == ACCEPTS && by[r] == life[0])
			:: else
			fi
		};
		if
		:: s == ACCEPTED && !dead[1] ->
			d_step { word[0] = CONNECTED; does[0] = JOINED; rung[1] = true }
		:: s == REFUSED || s == ABORTED || dead[1] ->
			d_step { does[0] = WAITS; conn[0] = NONE; SEEN(S1, s == REFUSED);
#ifndef NO_REFUSED
				refused = aim[r];
#endif
#ifdef NO_LOOK
				s = 0
#endif
			}
#ifdef NO_LOOK
			; break
#endif
		:: else -> break
		fi
	:: does[0] == WAITS && !dead[1] ->
		w = word[1];
		u = use[1];
		if
		:: w == READY && u != refused && records < RECORDS ->
			d_step {
				r = records; records++;
				state[r] = REQUESTED; by[r] = life[0]; aim[r] = u;
				CLAIM(N1_one, !made[life[0] * (LIVES + 1) + u]);
				made[life[0] * (LIVES + 1) + u] = true;
				conn[0] = r; does[0] = ASKS
			};
			atomic { inbox!r; rung[1] = true }
		:: else
		fi;
		break
	:: does[0] == JOINED ->
		if
		:: state[conn[0]] == ABORTED || dead[1] -> d_step { does[0] = LOST; conn[0] = NONE }
		:: else
		fi;
		break
	:: else -> break
	od
}

/* release: the higher side frees the records that neither side uses. */
inline release() {
	for (u : 0 .. RECORDS - 1) {
		d_step { if :: state[u] != FREE && conn[0] != u && (done[u] || dead[1]) -> state[u] = FREE; by[u] = 0; aim[u] = 0; done[u] = false :: else fi }
	}
	u = 0
}

/* become_ready, of the lower side; for a new endpoint the use is the next. */
inline ready_lower() {
#ifdef LOAD_FIRST
	w = word[0];
	word[1] = READY;
#else
	word[1] = READY;
	w = word[0];
#endif
	does[1] = WAITS;
#ifndef NO_RING
	if :: w == READY -> rung[0] = true :: else fi
#endif
}

inline forget_lower() {
	d_step { conn[1] = NONE; does[1] = WAITS; SEEN(S2, true) };
	if :: !dead[0] -> d_step { done[r] = true; rung[0] = true } :: else fi;
#ifndef NO_RETURN
	ready_lower()
#endif
}

inline step_lower() {
	if
	:: does[1] == ACCEPTS ->
		r = conn[1];
		s = state[r];
		if
		:: s == ESTABLISHED || s == ABORTED -> does[1] = JOINED
		:: s == WITHDRAWN -> forget_lower()
#ifndef NO_DEATH
		:: s == ACCEPTED && dead[0] -> SEEN(S3, true); forget_lower()
#endif
		:: else
		fi
	:: else
	fi;
	if
	:: does[1] == JOINED ->
		r = conn[1];
		if
		:: state[r] == ABORTED || dead[0] -> d_step { does[1] = LOST; conn[1] = NONE; done[r] = true; rung[0] = true }
		:: else
		fi
	:: else
	fi
}

inline request_lower() {
	inbox?q;
	r = q;
	s = state[r];
	if
	:: dead[0] -> skip
#ifdef FULL
	:: !dead[0] && s == REQUESTED ->
		d_step { if :: state[r] == REQUESTED -> state[r] = REFUSED :: else fi; done[r] = true; rung[0] = true }
#endif
	:: !dead[0] && s == REQUESTED && does[1] == WAITS ->
		conn[1] = r;
#ifndef LATE
		word[1] = CONNECTED;
#endif
		d_step { if :: state[r] == REQUESTED -> state[r] = ACCEPTED; does[1] = ACCEPTS; rung[0] = true; SEEN(S4, aim[r] != use[1]) :: else fi };
#ifdef LATE
		word[1] = CONNECTED;
#endif
		if
		:: does[1] != ACCEPTS -> forget_lower()
		:: else
		fi
	:: else ->
		d_step {
			if :: state[r] == REQUESTED -> state[r] = REFUSED :: else fi;
			rung[0] = true
		};
#ifdef NO_DONE
		if :: s == WITHDRAWN -> skip :: else -> d_step { done[r] = true; rung[0] = true } fi
#else
		d_step { done[r] = true; rung[0] = true }
#endif
	fi
}

proctype Higher() {
	byte r, s, w, u, refused;
	{
end:		do
		:: does[0] == IDLE && life[0] < LIVES -> life[0] = LIVES	/* no other endpoint comes */
		:: does[0] == IDLE && life[0] < LIVES ->
			d_step { life[0]++; refused = 0 };
			if :: stays[0] = true :: skip fi;
#ifdef LOAD_FIRST
			w = word[1];
			u = use[1];
			word[0] = READY;
			does[0] = WAITS;
			if
			:: w == READY -> step_higher()
			:: else
			fi
#else
			word[0] = READY;
			does[0] = WAITS;
			step_higher()
#endif
			; skip; d_step { r = 0; s = 0; w = 0; u = 0 }
		:: does[0] != IDLE && !stays[0] ->		/* leave */
			word[0] = RESET;
			if
			:: conn[0] != NONE ->
				r = conn[0];
#ifdef NO_WITHDRAW
				d_step { if :: state[r] == ESTABLISHED -> state[r] = ABORTED :: else fi };
#else
				d_step {
					if
					:: state[r] == REQUESTED || state[r] == ACCEPTED -> state[r] = WITHDRAWN
					:: state[r] == ESTABLISHED -> state[r] = ABORTED
					:: else
					fi
				};
#endif
				rung[1] = true
			:: else
			fi;
			d_step { conn[0] = NONE; does[0] = IDLE; r = 0 }
		:: rung[0] ->
			rung[0] = false;
			step_higher();
			release();
			skip;
			d_step { r = 0; s = 0; w = 0; u = 0 }
		od
	} unless { dead[0] };
	skip
}

proctype Lower() {
	byte r, s, w, q;
	{
end:		do
		:: does[1] == IDLE && life[1] < LIVES -> life[1] = LIVES
		:: does[1] == IDLE && life[1] < LIVES ->
			d_step { life[1]++; use[1]++ };
			if :: stays[1] = true :: skip fi;
			ready_lower();
			w = 0
		:: does[1] != IDLE && !stays[1] ->		/* leave */
			word[1] = RESET;
			if
			:: conn[1] != NONE ->
				r = conn[1];
				if
				:: !dead[0] ->
					d_step {
						if
						:: state[r] == ACCEPTED || state[r] == ESTABLISHED -> state[r] = ABORTED
						:: else
						fi
					};
					d_step { done[r] = true; rung[0] = true }
				:: else
				fi
			:: else
			fi;
			d_step { conn[1] = NONE; does[1] = IDLE; r = 0 }
		:: rung[1] ->
			rung[1] = false;
			do
			:: nempty(inbox) -> request_lower()
			:: empty(inbox) -> break
			od;
			step_lower();
			skip;
			d_step { r = 0; s = 0; w = 0; q = 0 }
		od
	} unless { dead[1] };
	skip
}

#ifdef MORTAL
proctype Killer() {
	atomic { dead[MORTAL] = true; rung[1 - MORTAL] = true; conn[MORTAL] = NONE }
}
#endif

/* At rest, the claims about the end hold. A side stays as it is at any time, so this happens often. */
proctype Monitor() {
	byte i;
	timeout ->
	d_step {
		for (i : 0 .. RECORDS - 1) { CLAIM(N3_freed, state[i] == FREE || dead[0] || conn[0] == i) };
#ifndef FULL
		CLAIM(N4_meet, !(does[0] == WAITS && does[1] == WAITS && !dead[0] && !dead[1]));
#endif
		CLAIM(N4_meet, dead[0] || does[0] != ASKS);
		CLAIM(N4_meet, dead[1] || does[1] != ACCEPTS);
		SEEN(S5, does[0] == JOINED && does[1] == JOINED && life[0] == LIVES && life[1] == LIVES)
	}
}

init {
	atomic {
		conn[0] = NONE; conn[1] = NONE;
		run Higher(); run Lower(); run Monitor()
#ifdef MORTAL
		; run Killer()
#endif
	}
}
