/* SPDX-License-Identifier: BSD-3-Clause
 * locate_test.c - cards that are asked for over the control graph: by all of all,
 * in parts, round a rank that has stopped, fresh, and answers that make no
 * sense. */
#include "support/tap.h"

#include <string.h>

#include "base/clock.h"
#include "engine/state.h"
#include "support/loop.h"
#include "support/rig.h"

static tt_rig make(uint32_t n)
{
    const tt_rig_opts opts = {.n = n,
                              .ops = &tt_net_loop,
                              .mem = &tt_mem_std,
                              .asks = true,
                              .is_linked = true};
    tt_rig rig;
    assert_int_equal(tt_rig_create(&opts, &rig), 0);
    return rig;
}

/* All but one take a step; ticks come only while calls are open. */
static void step_but(const tt_rig *rig, uint32_t but)
{
    for (uint32_t r = 0; r < rig->n; r++) {
        if (r == but)
            continue;
        tt_engine_lock(rig->engines[r]);
        tt_mesh_has_news(rig->meshes[r]);
        tt_engine_step(rig->engines[r]);
        tt_engine_unlock(rig->engines[r]);
    }
}

static tt_peer *peer_of(const tt_rig *rig, uint32_t a, uint32_t b)
{
    return &rig->meshes[a]->peers[b];
}

static void dial(const tt_rig *rig, uint32_t a, uint32_t b)
{
    tt_engine_lock(rig->engines[a]);
    tt_peer_dial(peer_of(rig, a, b));
    tt_engine_unlock(rig->engines[a]);
}

static void ask(const tt_rig *rig, uint32_t a, uint32_t b, bool is_fresh,
                uint64_t until_ns)
{
    tt_engine_lock(rig->engines[a]);
    tt_locate(peer_of(rig, a, b), is_fresh, until_ns);
    tt_engine_unlock(rig->engines[a]);
}

/* A card with one address of that many equal bytes, by a net that nobody has. */
static size_t odd_card(unsigned char *card, uint16_t len, uint8_t byte)
{
    card[0] = 99;
    card[1] = 0;
    memcpy(card + 2, &len, sizeof(len));
    memset(card + 4, byte, len);
    return 4u + len;
}

/* All at once, in both directions. */
static void everybody_finds_everybody(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {2, 5, 6, 7, 12, 24, 33};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        const uint32_t n = sizes[i];
        tt_rig rig = make(n);
        uint32_t n_near = 0, n_up = 0;
        for (uint32_t b = 1; b < n; b++)
            n_near += tt_mesh_is_neighbour(0, b, n);
        assert_int_equal(rig.meshes[0]->n_opened, n_near);
        for (uint32_t a = 0; a < n; a++)
            for (uint32_t b = 0; b < n; b++)
                if (a != b)
                    dial(&rig, a, b);
        while (n_up < n * (n - 1)) {
            step_but(&rig, TT_NONE);
            n_up = 0;
            for (uint32_t a = 0; a < n; a++)
                n_up += rig.meshes[a]->n_opened;
        }
        for (uint32_t a = 0; a < n; a++)
            assert_int_equal(rig.meshes[a]->n_asking, 0);
        tt_rig_destroy(&rig);
    }
}

static void step_until_found(const tt_rig *rig, uint32_t a, uint32_t b,
                             uint32_t but)
{
    while (peer_of(rig, a, b)->search)
        step_but(rig, but);
}

/* A long card comes in parts; what others know of it may be old. */
static void only_the_rank_itself_is_fresh(void **state)
{
    (void)state;
    static unsigned char before[TT_MESH_CARD_MAX], after[TT_MESH_CARD_MAX];
    const size_t old = odd_card(before, 1000, 1), new = odd_card(after, 3000, 2);
    tt_rig rig = make(12);
    for (uint32_t r = 0; r < 12; r++) /* as if they had it from the start */
        if (r == 6 || tt_mesh_is_neighbour(r, 6, 12))
            assert_int_equal(tt_mesh_card(rig.meshes[r], 6, before, old), 0);
    assert_int_equal(tt_mesh_card(rig.meshes[6], 6, after, new), 0);
    for (uint32_t a = 0; a < 12; a += 3) { /* 3, 9: no neighbours either */
        if (a == 6)
            continue;
        tt_peer *peer = peer_of(&rig, a, 6);
        peer->is_lost = false;
        ask(&rig, a, 6, false, UINT64_MAX);
        peer->is_sought = false; /* nobody dials it */
        step_until_found(&rig, a, 6, TT_NONE);
        assert_int_equal(peer->seat_bytes, old);
        assert_memory_equal(peer->seat, before, old);
        ask(&rig, a, 6, true, UINT64_MAX);
        peer->is_sought = false;
        step_until_found(&rig, a, 6, TT_NONE);
        assert_int_equal(peer->seat_bytes, new);
        assert_memory_equal(peer->seat, after, new);
    }
    tt_rig_destroy(&rig);
}

/* Whoever is on the way may be stopped: then all are asked. */
static void a_stopped_rank_is_gone_round(void **state)
{
    (void)state;
    for (uint32_t but = 0; but < 12; but++) {
        if (but == 6 || but == 0 || !tt_mesh_is_neighbour(0, but, 12))
            continue;
        tt_rig rig = make(12);
        ask(&rig, 0, 6, true, UINT64_MAX);
        peer_of(&rig, 0, 6)->search->again_ns = 0; /* not a second later */
        step_until_found(&rig, 0, 6, but);
        tt_rig_destroy(&rig);
    }
}

static void a_search_has_an_end(void **state)
{
    (void)state;
    tt_rig rig = make(12);
    tt_peer *peer = peer_of(&rig, 0, 6);
    ask(&rig, 0, 6, true, 1);
    while (peer->search)
        step_but(&rig, 6);
    assert_string_equal(peer->why, "rank 0 cannot reach rank 6: nobody has told "
                                   "where it is");
    assert_int_equal(peer->why_err, TUTTI_ENET);
    tt_rig_destroy(&rig);
}

/* Of a net that its card does not have. */
static void a_card_without_the_address(void **state)
{
    (void)state;
    unsigned char card[30];
    tt_rig rig = make(12);
    tt_peer *peer = peer_of(&rig, 0, 6);
    size_t used = odd_card(card, 20, 1);
    assert_int_equal(tt_mesh_card(rig.meshes[0], 6, card, used), 0);
    dial(&rig, 0, 6);
    assert_true(peer->has_missed);
    assert_null(peer->search);
    assert_int_equal(peer->why_err, TUTTI_EPROTO);
    tt_rig_destroy(&rig);
}

/* From a neighbour that is lost by it. */
static void hear(const tt_rig *rig, const tt_msg *m, const void *payload)
{
    tt_peer *peer = peer_of(rig, 0, 1);
    tt_engine_lock(rig->engines[0]);
    peer->is_lost = false;
    tt_engine_up.arrived(peer, m, payload);
    tt_engine_unlock(rig->engines[0]);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    const unsigned char bytes[TT_NET_INLINE + 1] = {0};
    tt_rig rig = make(12);
    const tt_peer *peer = peer_of(&rig, 0, 1);
    const tt_msg locate = {.magic = TT_MSG_MAGIC, .kind = TT_KIND_LOCATE};
    const tt_msg card = {.magic = TT_MSG_MAGIC,
                         .kind = TT_KIND_CARD,
                         .len = 100,
                         .lane = 6,
                         .channel = UINT64_C(200) << 32};
    tt_msg m = locate;
    m.lane = 12;
    hear(&rig, &m, NULL);
    assert_true(peer->is_lost);
    m = locate;
    m.slice = 12;
    hear(&rig, &m, NULL);
    assert_true(peer->is_lost);
    m = card;
    m.channel = (uint64_t)(TT_MESH_CARD_MAX + 1) << 32;
    hear(&rig, &m, bytes);
    assert_true(peer->is_lost);
    m = card;
    m.channel |= 101;
    hear(&rig, &m, bytes);
    assert_true(peer->is_lost);
    m = card;
    m.len = TT_NET_INLINE + 1;
    hear(&rig, &m, bytes);
    assert_true(peer->is_lost);
    m = card; /* nobody has asked for it, or for this part of it */
    hear(&rig, &m, bytes);
    assert_false(peer->is_lost);
    ask(&rig, 0, 6, true, UINT64_MAX);
    m.seq = UINT64_MAX;
    m.channel |= 7;
    hear(&rig, &m, bytes);
    assert_int_equal(peer_of(&rig, 0, 6)->search->used, 0);
    /* A part, and one of another card. */
    m.channel = card.channel;
    hear(&rig, &m, bytes);
    assert_int_equal(peer_of(&rig, 0, 6)->search->used, 100);
    m.channel = UINT64_C(201) << 32 | 100;
    hear(&rig, &m, bytes);
    assert_int_equal(peer_of(&rig, 0, 6)->search->used, 100);
    assert_false(peer->is_lost);
    tt_rig_destroy(&rig);
}

static void cards_are_cut_and_bounded(void **state)
{
    (void)state;
    static unsigned char card[TT_MESH_CARD_MAX + 1];
    tt_rig rig = make(6);
    size_t used = odd_card(card, 20, 1);
    tt_mesh *mesh = rig.meshes[0];
    /* Zeroes behind it, an address cut short, no address. */
    assert_int_equal(tt_mesh_card(mesh, 3, card, used + 40), 0);
    assert_int_equal(peer_of(&rig, 0, 3)->seat_bytes, used);
    assert_int_equal(tt_mesh_card(mesh, 3, card, used - 1), TUTTI_EPROTO);
    assert_int_equal(tt_mesh_card(mesh, 3, card, 0), TUTTI_EPROTO);
    assert_int_equal(tt_mesh_card(mesh, 3, card, sizeof(card)), TUTTI_EINVAL);
    assert_int_equal(tt_mesh_card(mesh, 6, card, used), TUTTI_EINVAL);
    assert_int_equal(peer_of(&rig, 0, 3)->seat_bytes, used);
    tt_rig_destroy(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everybody_finds_everybody),
        cmocka_unit_test(only_the_rank_itself_is_fresh),
        cmocka_unit_test(a_stopped_rank_is_gone_round),
        cmocka_unit_test(a_search_has_an_end),
        cmocka_unit_test(a_card_without_the_address),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(cards_are_cut_and_bounded),
    };
    return TT_RUN_TAP(tests);
}
