/*
 * The biased mutex, for Spin.
 *
 * internal/asym.BiasedMutex costs the goroutine that has the bias plain loads and stores only. Any other goroutine that
 * locks it revokes the bias first, and pays for both with membarrier(2), which is Heavy. The model has LockBiased of
 * stack_unsafe.go, and lockSlow, tryLockSlow, revokeBias, setBias and Unlock of mutex.go; each load or store is a step.
 * The promises of the mutex are assertions. LIBRARY is the lock of the C library, c/src/shm/lock.c and snd_lock of c/src/shm/fabric.h.
 *
 *	biased goroutine (LockBiased, Unlock)        any other (lockSlow, tryLockSlow), with mu held
 *	-------------------------------------        -----------------------------------------------
 *	bias is mine, and I do not hold the lock?    bias := none
 *	inside := 1                                  Heavy
 *	bias is still mine?  no: inside := 0, fail   the latest bias has inside = 1: wait; tryLockSlow: fail
 *	the critical section                         the critical section
 *	inside := 0                                  take the bias, or not; unlock mu
 *
 * It is a store-then-load handshake: the biased goroutine stores inside and loads bias, the other one stores bias and
 * loads inside. The store to inside may wait in the store buffer during the load; Heavy empties that buffer.
 *
 * Every process stores through a first-in-first-out store buffer, as on amd64, and loads from it first. Operations of
 * sync.Mutex and of package atomic empty the buffer of their caller. Heavy passes all processes, one after the other:
 * each empties its buffer at some moment within the call, not all at the same one.
 *
 * A process is a goroutine. A bias has the number of its goroutine. The code makes a new bias for a goroutine that did
 * not have the latest one, but no goroutine still uses its old bias when it gets another. The model does not say how many
 * consecutive locks give the bias: any unlock may give it.
 *
 * Sizes, to be given with -D: N processes (2), ROUNDS locks of each (2), BUFFERED stores in a buffer (5).
 *
 * Variants, in which all claims hold: AGAIN, a holder may try to lock once more, which must fail; MOVES, LockBiased may at any time not
 * recognise the goroutine, because its stack has moved; the goroutine then revokes its own bias.
 *
 * LIBRARY: threads take the place of goroutines, and there is no TryLock. A process that has mu and finds the bias its own leaves it. One that has
 * revoked a bias waits, and may give it back when it unlocks, as the engine does. The flag is slow: the lock is held through mu.
 *
 * Mutations, with the step that each removes or moves. check.sh lists the claims that it must break.
 *	NO_HEAVY        Heavy in revokeBias
 *	HEAVY_FIRST     Heavy before the store of bias
 *	NO_SECOND_LOAD  the second load of bias
 *	NO_WAIT         the wait for a biased holder
 *	SHARED_FLAG     inside of each bias: one for all
 *	FORGET_REVOKED  the wait, unless there was a bias to revoke
 *	NO_HELD_CHECK   the load of heldByBias in LockBiased (AGAIN)
 *	NO_BACK_OFF     the clearing of inside when the bias is found revoked
 *	SLOW_LATE       the order of the bias, given at an unlock, and of slow before it (LIBRARY)
 *	UNLOCK_FIRST    the order of the last store and the unlock
 *	CHECK_FIRST     the order of armed and the check
 *	NO_LOCK         the lock around the waiter's check
 *	PLAIN_ARM       the exchange of armed, which the code has for other reasons: breaks nothing
 *
 * Not modelled: how a goroutine is recognised. It runs where the stack was when it got the bias, and the runtime's
 * record has the same bounds. While two goroutines appear to have the bias, only one of them runs on that stack. A
 * thread of C is recognised by the place of its thread-local storage, which no other living thread has. Nor are the
 * sleeps of a waiting Lock, more than three goroutines, three locks of each of two, and optimisations of Go's compiler
 * on the plain accesses.
 *
 * REACH asserts that certain situations never occur; each of these
 * assertions must fail.
 */

#ifndef N
#define N 2
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef BUFFERED
#define BUFFERED 5
#endif

/* ---- Shared memory --------------------------------------------------------------------------------------------- */

#define BIAS	0		/* 0 = none, else the process's number plus one */
#define LATEST	1		/* likewise: the present bias, or the one that was revoked last */
#define HELDBYBIAS 2
#define SLOW	2		/* instead, in LIBRARY */
#define DATA	3		/* the guarded data: the number of pushes */
#define ARMED	4		/* the waiter's doorbell */
#ifdef SHARED_FLAG
#define INSIDE(p)	5
#define CELLS	6
#else
#define INSIDE(p)	(5 + (p))
#define CELLS	(5 + N)
#endif

byte M[CELLS];
bool mu;			/* the sync.Mutex is locked */

typedef Buffer {
	byte count;
	byte cell[BUFFERED];
	byte value[BUFFERED]
}
Buffer buffer[N];

#define EMPTY(p)	(buffer[p].count == 0)

inline store(a, v) {
	d_step {
		buffer[me].count < BUFFERED ->
		buffer[me].cell[buffer[me].count] = a;
		buffer[me].value[buffer[me].count] = v;
		buffer[me].count++
	}
}

inline load(x, a) {
	d_step {
		x = M[a];
		k = 0;
		do
		:: k < buffer[me].count ->
			if :: buffer[me].cell[k] == a -> x = buffer[me].value[k] :: else fi;
			k++
		:: else -> break
		od;
		k = 0
	}
}

inline exchange(a, v) { d_step { EMPTY(me) -> M[a] = v } }

/* Moves the oldest store of p's buffer to memory. */
inline flush(p) {
	d_step {
		!EMPTY(p) ->
		M[buffer[p].cell[0]] = buffer[p].value[0];
		buffer[p].count--;
		k = 0;
		do
		:: k < buffer[p].count ->
			buffer[p].cell[k] = buffer[p].cell[k + 1];
			buffer[p].value[k] = buffer[p].value[k + 1];
			k++
		:: else -> break
		od;
		buffer[p].cell[k] = 0;
		buffer[p].value[k] = 0;
		k = 0
	}
}

active proctype Buffers() {
	byte k;
endEmpty:
	do
	:: flush(0)
	:: flush(1)
#if N > 2
	:: flush(2)
#endif
	od
}

/* ---- Claims ----------------------------------------------------------------------------------------------------- */

/* Only the claims use these. */
byte holders;			/* how many processes are in the critical section */
byte pushes;			/* stores to DATA so far, in memory or not */
byte unrung;			/* the newest push after which the waiter's doorbell was not armed */
bool checked;			/* the waiter has checked, */
byte seen;			/* and this is the newest push that it has seen */

/* O1_alone. One holder at a time. A holder that tries once more fails (AGAIN). A biased goroutine that is not recognised,
 *           because its stack has moved, is like any other (MOVES).
 * O2_seen.  A holder sees everything that the holders before it stored.
 * O3_woken. A waiter stores armed and then locks. It sees each push, or the pushing process sees armed.
 * Deadlock: a process waits for ever. */

/* A claim's name is a variable with its truth value for one moment, so that the checker's message has the name. */
hidden byte O1_alone, O2_seen, O3_woken;
#define CLAIM(name, what)	name = (what); assert(name)

#ifdef REACH
hidden byte S1, S2, S3, S4, S5, S6, S7, S8, S9;
#define SEEN(name, what)	name = !(what); assert(name)
#else
#define SEEN(name, what)	skip
#endif

/* ---- The mutex ------------------------------------------------------------------------------------------------- */

#if defined(NO_HELD_CHECK) || defined(LIBRARY)
#define HELD	0
#else
#define HELD	x
#endif

/* LockBiased. Sets entered if it locks the mutex. */
inline lockbiased() {
	entered = false;
	load(x, BIAS);
	if
	:: x != me + 1
#ifdef MOVES
	:: true
#endif
	:: x == me + 1 ->
		load(x, HELDBYBIAS);
		if
		:: HELD
		:: else ->
			store(INSIDE(me), 1);
#ifdef NO_SECOND_LOAD
			x = me + 1;
#else
			load(x, BIAS);
#endif
			if
			:: x == me + 1 ->
#ifndef LIBRARY
				store(HELDBYBIAS, 1);
#endif
				entered = true
			:: else ->
				d_step { SEEN(S3, true); SEEN(S5, M[HELDBYBIAS] && M[BIAS] != 0) };
#ifndef NO_BACK_OFF
				store(INSIDE(me), 0)
#endif
			fi
		fi
	fi;
	x = 0
}

inline heavy() {
	i = 0;
	do
	:: i < N -> atomic { EMPTY(i) -> i++ }
	:: else -> break
	od;
	i = 0
}

/* Sets took if there was a bias, which only FORGET_REVOKED uses. */
inline revokebias() {
	load(x, BIAS);
	took = x != 0;
	if
	:: x != 0 ->
#ifdef HEAVY_FIRST
		heavy();
		exchange(BIAS, 0)
#else
		exchange(BIAS, 0);
#ifndef NO_HEAVY
		heavy()
#endif
#endif
	:: else
	fi;
	x = 0
}

#if defined(FORGET_REVOKED) || defined(LIBRARY)
#define ASKED	(took && x != 0)
#else
#define ASKED	(x != 0)
#endif

/* Waits while the goroutine with the latest bias is inside. The caller's buffer is empty, because it has mu. */
inline awaitbiased() {
	load(x, LATEST);
	d_step { SEEN(S2, x != 0 && M[INSIDE(x - 1)]) };
#ifdef NO_WAIT
	skip;
#else
	!ASKED || !M[INSIDE(x - 1)];
#endif
	x = 0
}

inline lock() {
	lockbiased();
	if
	:: entered
	:: else ->
		d_step { !mu && EMPTY(me) -> mu = true };
#ifdef LIBRARY
		load(x, BIAS);
		if
		:: x == me + 1 -> d_step { SEEN(S4, true); took = false; x = 0 }
		:: else -> revokebias(); awaitbiased()
		fi;
		store(SLOW, 1);
#else
		revokebias();
		awaitbiased();
#endif
		entered = true
	fi
}

/* TryLock. Sets entered if it has locked the mutex. */
inline trylock() {
	lockbiased();
	if
	:: entered
	:: else ->
		d_step { EMPTY(me) -> entered = !mu; mu = true };
		if
		:: entered ->
			revokebias();
			load(x, LATEST);
			if
#ifndef NO_WAIT
			:: ASKED && M[INSIDE(x - 1)] ->
				d_step { EMPTY(me) -> mu = false; SEEN(S4, true) };
				entered = false
#endif
			:: !ASKED || !M[INSIDE(x - 1)]
#ifdef NO_WAIT
			:: else
#endif
			fi;
			x = 0
		:: else
		fi
	fi
}

#ifdef LIBRARY
inline unlock() {
	load(x, SLOW);
	if
	:: x ->
#ifndef SLOW_LATE
		store(SLOW, 0);
#endif
		if
		:: store(LATEST, me + 1); store(BIAS, me + 1)	/* give_bias */
		:: took -> load(x, LATEST); store(BIAS, x); d_step { SEEN(S9, true) }	/* snd_unlock_aside */
		:: skip
		fi;
#ifdef SLOW_LATE
		store(SLOW, 0);
#endif
		d_step { EMPTY(me) -> mu = false; took = false }
	:: else ->
		load(x, LATEST);
		store(INSIDE(x - 1), 0)
	fi;
	x = 0
}
#else
inline unlock() {
	load(x, HELDBYBIAS);
	if
	:: x ->
		store(HELDBYBIAS, 0);
		load(x, LATEST);
		store(INSIDE(x - 1), 0)
	:: else ->
		if
		:: store(LATEST, me + 1); exchange(BIAS, me + 1)	/* setBias */
		:: skip
		fi;
		d_step { EMPTY(me) -> mu = false }
	fi;
	x = 0
}
#endif

/* ---- The users ------------------------------------------------------------------------------------------------- */

#define WAITER	(N - 1)		/* sleeps in its last round; in the others it is like all processes */

inline begin() { d_step { holders++; SEEN(S1, M[BIAS] == me + 1); CLAIM(O1_alone, holders == 1) } }

/* A critical section with a push, and the unlock. In between the holder may try to lock once more, which must fail. */
inline push() {
	begin();
	load(x, DATA);
	d_step { CLAIM(O2_seen, x == pushes); mine = x + 1; pushes = mine; x = 0 };
#ifdef AGAIN
	if
	:: trylock(); d_step { CLAIM(O1_alone, !entered); entered = true }
	:: skip
	fi;
#endif
#ifndef UNLOCK_FIRST
	store(DATA, mine);
#endif
	d_step { holders-- };
	unlock();
#ifdef UNLOCK_FIRST
	store(DATA, mine);
#endif
	skip
}

/* After the unlock: wakes the waiter if its doorbell is armed. */
inline ring() {
	d_step {
		if
		:: M[ARMED] -> SEEN(S6, checked && seen < mine)
		:: else ->
			SEEN(S7, EMPTY(me) == 0);
			unrung = (unrung < mine -> mine : unrung);
			CLAIM(O3_woken, !checked || seen >= mine)
		fi;
		mine = 0
	}
}

/* The waiter arms its doorbell, and then checks for the last time. */
inline sleep() {
#ifdef NO_LOCK
	exchange(ARMED, 1);
	load(x, DATA);
#else
#if defined(CHECK_FIRST)
	skip;
#elif defined(PLAIN_ARM)
	store(ARMED, 1);
#else
	exchange(ARMED, 1);
#endif
	lock();
	begin();
	load(x, DATA);
#endif
	d_step { checked = true; seen = x; x = 0; CLAIM(O3_woken, seen >= unrung) };
#ifndef NO_LOCK
	d_step { SEEN(S8, M[BIAS] == me + 1); holders-- };
	unlock();
#endif
#ifdef CHECK_FIRST
	exchange(ARMED, 1);
#endif
	skip
}

proctype Process(byte me) {
	byte x, i, k, mine, left = ROUNDS;
	bool entered, took;
	do
	:: left > 1 || left == 1 && me != WAITER ->
		left--;
#ifdef LIBRARY
		lock();
#else
		if :: lock() :: trylock() fi;
#endif
		if
		:: entered -> push(); ring()
		:: else
		fi
	:: else -> break
	od;
	if
	:: me == WAITER -> sleep()
	:: else
	fi
}

init {
	byte p;
	atomic {
		do
		:: p < N -> run Process(p); p++
		:: else -> break
		od
	}
}
