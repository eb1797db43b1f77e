/*
 * The two doorbells of a member, for Spin: which of them a peer rings, and the state that a stopped ringer leaves.
 *
 * A member has a doorbell for the waits of its program, which serve everything while they are awake, and one for its
 * progress engine. A peer that has stored a message rings the waits, and the engine only if no wait sleeps. Either takes
 * all messages that it finds. A wait may end at any moment, for its own reasons, and the program need not wait again.
 * While the program waits, the engine may rest: it does not sleep on its doorbell, and continues when the last wait has
 * ended.
 *
 *	ringer (Doorbell.Ring)                        waiter, of either doorbell (Arm, check, Sleep)
 *	----------------------                        ----------------------------------------------
 *	slot := message                               ticket := rings
 *	armed 0?  this doorbell is quiet              armed := 1, then HeavyGlobal
 *	armed 1 -> the ringer's mark                  check the slots
 *	  or it is 0 by now: this doorbell is quiet   sleep, if rings is the ticket
 *	  or 1 again: leave it armed                  armed := 0
 *	  or another ringer's mark: take it over      check the slots
 *	rings++, wake all
 *	armed := 0, if the mark is still there        a wait that ends, if that check failed: ring the engine
 *	if the waits were quiet: ring the engine
 *
 * The store to the slot is a plain one, which waits in the store buffer of its process until a locked instruction or
 * HeavyGlobal empties it.
 *
 * The proof in short: a ring that reports true has reached a waiter that checks for work afterwards. A wait that checks
 * for the last time either sees all work that rang it, or rings the engine.
 *
 * Sizes, to be given with -D: N ringers (1), WAITS of the program, one after another (2), MESSAGES of each ringer (2).
 *
 * Variants, in which all claims hold:
 *	HELD   a check fails once because another goroutine of the program holds the endpoint. A waiter whose check failed
 *	       does not sleep but checks again, unless it is a wait that has ended
 *	STOPS  the last ringer, which has one message, may stop for ever at any step. Its message may stay unfound; the others
 *	       still announce theirs. To keep the model small, stores are not plain, and there is one wait, which does
 *	       not end: the engine rests. Use N=2
 *
 * Mutations, with the step that each removes or moves. check.sh lists the claims that it must break.
 *	NO_ENGINE       the ring of the engine
 *	RANG_ANYWAY     that Ring reports false if the doorbell is disarmed by the time of the exchange
 *	NO_LAST_CHECK   the last check of a wait that ends
 *	NO_ENGINE_RING  that a wait whose last check failed rings the engine (HELD)
 *	ONE_MARK        that each process has a mark of its own (STOPS)
 *	TRUST_MARK      that a ringer also rings a doorbell with another's mark (STOPS)
 *
 * Not modelled: several waits on one doorbell, which doorbell.pml has; several processes that share a mark (a random
 * number of 31 bits).
 *
 * REACH asserts that certain situations never occur. Each of these
 * assertions must fail; else the model could pass by doing nothing.
 */

#ifndef N
#define N 1
#endif
#ifndef WAITS
#define WAITS 2
#endif
#ifndef MESSAGES
#define MESSAGES 2
#endif

#define THE_WAITS	0
#define ENGINE		1

byte slot[N];			/* the newest message of each ringer: its number, from 1 */
byte taken[N];			/* the newest message that the member has found */
byte armed[2];			/* 0, 1, or 2 and more: the mark of a ringer's process */
byte rings[2];			/* the word of the futex */
bool asleep[2];			/* in the futex */
bool stopped[N];		/* the ringer's process has stopped */
bool held;			/* a check has failed */
bool waiting;			/* the program waits */

#ifdef STOPS
#define STORE(n)	slot[me] = n
#define FENCE(p)	true
#define EARLY		false
#define LAST(me)	(me == N - 1 -> 1 : MESSAGES)
#else
#define STORE(n)	buffer[me]!n
#define FENCE(p)	empty(buffer[p])
#define EARLY		true
#define LAST(me)	MESSAGES
chan buffer[N] = [MESSAGES] of { byte };

active proctype Buffers() {
endEmpty:
	do
	:: d_step { nempty(buffer[0]) -> buffer[0]?slot[0] }
#if N > 1
	:: d_step { nempty(buffer[1]) -> buffer[1]?slot[1] }
#endif
	od
}
#endif

inline heavyglobal() {
#ifndef STOPS
	i = 0;
	do
	:: i < N -> atomic { FENCE(i) -> i++ }
	:: else -> break
	od;
	i = 0
#else
	skip
#endif
}

/* D2_served. When no process can take a further step, every message has been found, except those of a stopped
 * ringer. */
hidden byte D2_served;
#define CLAIM(name, what)	name = (what); assert(name)

#ifdef REACH
hidden byte S1, S2, S3, S4, S5, S6, S7;
#define SEEN(name, what)	name = !(what); assert(name)
#else
#define SEEN(name, what)	skip
#endif

#ifdef ONE_MARK
#define MARK	2
#else
#define MARK	(2 + me)
#endif

/* Doorbell.Ring. rang says whether the doorbell was armed. */
inline ring(b) {
	rang = false;
	if
	:: armed[b] == 0
	:: armed[b] != 0 ->
		d_step {
			FENCE(me);				/* a compare-and-swap, and then a load */
			if
			:: armed[b] == 1 -> armed[b] = MARK; mark = MARK
			:: armed[b] == 0 -> SEEN(S1, true)
			:: else -> mark = armed[b]; other = true; SEEN(S2, true)
			fi
		};
		if
#ifndef RANG_ANYWAY
		:: mark == 0				/* the waiter has left, and may have checked before our store */
#endif
#ifdef TRUST_MARK
		:: other -> rang = true
#endif
		:: else ->
			rings[b]++;
			d_step { SEEN(S3, b == ENGINE && asleep[b]); SEEN(S4, b == THE_WAITS && asleep[b]); asleep[b] = false };
			d_step { if :: mark != 0 && armed[b] == mark -> armed[b] = 0 :: else -> SEEN(S5, armed[b] == 1) fi };
			rang = true
		fi;
		mark = 0; other = false
	fi
}

proctype Ringer(byte me) {
	byte n, mark;
	bool rang, other;
	{
		do
		:: n < LAST(me) ->
			n++;
			STORE(n);
			ring(THE_WAITS);
#ifndef NO_ENGINE
			if :: !rang -> ring(ENGINE) :: else fi;
#endif
			rang = false
		:: else -> break
		od
	} unless { stopped[me] }
}

#ifdef STOPS
active proctype Stop() {
	if :: stopped[N - 1] = true :: skip fi
}
#endif

/* Takes all messages that are there, or fails. */
inline check() {
	if
#ifdef HELD
	:: d_step { !held -> held = true; failed = true }
#endif
	:: d_step {
			found = slot[0] != taken[0];
			taken[0] = slot[0];
#if N > 1
			found = found || slot[1] != taken[1];
			taken[1] = slot[1];
#endif
			SEEN(S6, found)
		}
	fi
}

active proctype Program() {
	byte i, ticket, waits, me, mark;
	bool found, failed, over, rang, other;
	do
	:: waits < WAITS ->
		waits++;
		waiting = true;
		do
		:: !over ->
			ticket = rings[THE_WAITS];
			armed[THE_WAITS] = 1;
			heavyglobal();
			found = false; failed = false;
			check();
			if
			:: !found && !failed ->
				atomic { if :: rings[THE_WAITS] == ticket -> asleep[THE_WAITS] = true :: else fi };
				if
				:: skip;			/* for ever, if need be */
endAsleep:				!asleep[THE_WAITS]
				:: EARLY -> asleep[THE_WAITS] = false	/* a time-out, or the context's end */
				fi
			:: else
			fi;
			armed[THE_WAITS] = 0;
#ifndef NO_LAST_CHECK
			found = false; failed = false;
			check();
#endif
			if :: EARLY -> over = true :: over = false fi
		:: else -> break
		od;
		skip;
#ifndef NO_ENGINE_RING
		d_step { if :: failed && armed[ENGINE] != 0 -> armed[ENGINE] = 0; rings[ENGINE]++; SEEN(S7, asleep[ENGINE]); asleep[ENGINE] = false :: else fi };
#endif
		d_step { waiting = false; over = false; found = false; failed = false; ticket = 0 }
	:: EARLY -> break
	od
}

#ifndef STOPS
active proctype Engine() {
	byte i, ticket;
	bool found, failed;
	do
	:: waiting ->						/* it rests */
endRests:	!waiting
	:: true ->
		ticket = rings[ENGINE];
		armed[ENGINE] = 1;
		heavyglobal();
		found = false; failed = false;
		check();
		if
		:: !found && !failed ->
			atomic { if :: rings[ENGINE] == ticket -> asleep[ENGINE] = true :: else fi };
endAsleep:		!asleep[ENGINE]
		:: else
		fi;
		armed[ENGINE] = 0;
		ticket = 0; found = false; failed = false
	od
}
#endif

/* The state when no process can take a step. */
active proctype Quiet() {
endNever:
	timeout ->
	d_step {
		CLAIM(D2_served, stopped[0] || slot[0] == taken[0]);
#if N > 1
		CLAIM(D2_served, stopped[1] || slot[1] == taken[1]);
#endif
		skip
	}
}

init {
	byte p;
	atomic { do :: p < N -> run Ringer(p); p++ :: else -> break od }
}
