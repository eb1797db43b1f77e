/*
 * The two doorbells of a member, for Spin: which of them a peer rings, and the state that a stopped ringer leaves.
 *
 * A member has a bell for the waits of its program, which serve everything while they are awake, and one for its
 * engine. A peer that has stored a message rings the waits, and the engine only if no wait sleeps. Either takes all
 * messages that it finds. A wait may end at any moment, for its own reasons, and the program need not wait again. While
 * the program waits, the engine may rest: it does not sleep on its bell, and goes on when the last wait has ended.
 *
 *	ringer (Doorbell.Ring)                       sleeper, of either bell (Arm, look, Sleep)
 *	----------------------                       ------------------------------------------
 *	slot := message                              ticket := rings
 *	armed 0?  this bell is quiet                 armed := 1, then HeavyGlobal
 *	armed 1 -> the ringer's mark                 look at the slots
 *	  or it is 0 by now: this bell is quiet      sleep, if rings is the ticket
 *	  or 1 again: leave it armed                 armed := 0
 *	  or another ringer's mark: take it over     look at the slots
 *	rings++, wake all
 *	armed := 0, if the mark is there still       a wait that ends, if that look failed: ring the engine
 *	if the waits were quiet: the engine, likewise
 *
 * The store to the slot is a plain one, which waits in the store buffer of its process until a locked instruction or
 * HeavyGlobal empties it.
 *
 * Sizes, to be given with -D: N ringers (1), WAITS of the program, one after another (2), MESSAGES of each ringer (2).
 *
 * Variants, all correct:
 *	HELD   a look fails once because another goroutine of the program holds the endpoint. A sleeper whose look failed does
 *	       not sleep but looks again, unless it is a wait that has ended
 *	STOPS  the last ringer, which has one message, may stop for ever at any step. Its message may stay unfound; the others
 *	       still announce theirs. To keep the model small, stores are not plain, and there is one wait, which does
 *	       not end: the engine rests. Use N=2
 *
 * Mutations:
 *	NO_ENGINE (only the waits are rung), with HELD: NO_HAND_OVER (a wait that ends does not ring the engine), RANG_ANYWAY (a ring that finds the bell disarmed by now counts as rung), NO_LAST_LOOK (a wait
 *	that ends looks no more), with STOPS: ONE_MARK (all ringers have the same mark), TRUST_MARK (a bell that bears the mark
 *	of another ringer is not rung)
 *
 * WITNESS asserts that certain situations never come up, and each of these assertions has to fail. README.md says what
 * each of these means.
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
byte taken[N];			/* what the member has found */
byte armed[2];			/* 0, 1, or 2 and more: the mark of a ringer's process */
byte rings[2];			/* the word of the futex */
bool asleep[2];			/* in the futex */
bool stopped[N];		/* the ringer's process has stopped */
bool held;			/* a look has failed */
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

inline heavyforall() {
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

#ifdef WITNESS
hidden byte W1, W2, W3, W4, W5, W6, W7;
#define SEEN(name, what)	name = !(what); assert(name)
#else
#define SEEN(name, what)	skip
#endif

#ifdef ONE_MARK
#define MARK	2
#else
#define MARK	(2 + me)
#endif

/* Doorbell.Ring. rang says whether the bell was armed. */
inline ring(b) {
	rang = false;
	if
	:: armed[b] == 0
	:: armed[b] != 0 ->
		d_step {
			FENCE(me);				/* a compare-and-swap, and then a load */
			if
			:: armed[b] == 1 -> armed[b] = MARK; mark = MARK
			:: armed[b] == 0 -> SEEN(W1, true)
			:: else -> mark = armed[b]; other = true; SEEN(W2, true)
			fi
		};
		if
#ifndef RANG_ANYWAY
		:: mark == 0				/* the sleeper has left, and may have looked before our store */
#endif
#ifdef TRUST_MARK
		:: other -> rang = true
#endif
		:: else ->
			rings[b]++;
			d_step { SEEN(W3, b == ENGINE && asleep[b]); SEEN(W4, b == THE_WAITS && asleep[b]); asleep[b] = false };
			d_step { if :: mark != 0 && armed[b] == mark -> armed[b] = 0 :: else -> SEEN(W5, armed[b] == 1) fi };
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
inline look() {
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
			SEEN(W6, found)
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
			heavyforall();
			found = false; failed = false;
			look();
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
#ifndef NO_LAST_LOOK
			found = false; failed = false;
			look();
#endif
			if :: EARLY -> over = true :: over = false fi
		:: else -> break
		od;
		skip;
#ifndef NO_HAND_OVER
		d_step { if :: failed && armed[ENGINE] != 0 -> armed[ENGINE] = 0; rings[ENGINE]++; SEEN(W7, asleep[ENGINE]); asleep[ENGINE] = false :: else fi };
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
		heavyforall();
		found = false; failed = false;
		look();
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
