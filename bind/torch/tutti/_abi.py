# SPDX-License-Identifier: BSD-3-Clause
"""The public headers as ctypes see them. Written by tools/python-abi; do not edit.

An enum is a dict of its names, without TUTTI_. A struct is a class of the same name.
FUNCTIONS has the result and the arguments of every function.
"""

import ctypes as C

tutti_err = {
    "OK": 0,
    "AGAIN": 1,
    "EINVAL": -1,
    "ENOMEM": -2,
    "ELIMIT": -3,
    "ESYS": -4,
    "EBUSY": -5,
    "EFORK": -6,
    "ECONFIG": -7,
    "EPEER": -20,
    "EMISMATCH": -21,
    "ETIMEOUT": -22,
    "EABORTED": -23,
    "ENET": -24,
    "EBOOT": -25,
    "EPROTO": -26,
    "EFORMAT": -40,
    "EPROOF": -41,
    "ENOFIT": -42,
}
tutti_type = {
    "I8": 0,
    "U8": 1,
    "I32": 2,
    "U32": 3,
    "I64": 4,
    "U64": 5,
    "F16": 6,
    "BF16": 7,
    "F32": 8,
    "F64": 9,
    "BOOL": 10,
}
tutti_op = {
    "SUM": 0,
    "AVG": 1,
    "PROD": 2,
    "MIN": 3,
    "MAX": 4,
    "BAND": 5,
    "BOR": 6,
    "BXOR": 7,
    "SCALED_SUM": 8,
}
tutti_coll = {
    "ALL_REDUCE": 0,
    "REDUCE_SCATTER": 1,
    "ALL_GATHER": 2,
    "BROADCAST": 3,
    "REDUCE": 4,
    "ALL_TO_ALL": 5,
    "GATHER": 6,
    "SCATTER": 7,
    "BARRIER": 8,
    "SENDRECV": 9,
}
tutti_log_level = {
    "LOG_ERROR": 0,
    "LOG_WARN": 1,
    "LOG_INFO": 2,
    "LOG_DEBUG": 3,
    "LOG_TRACE": 4,
}
tutti_status_form = {
    "STATUS_TABLE": 0,
    "STATUS_JSON": 1,
    "STATUS_PROMETHEUS": 2,
}
tutti_group_kind = {
    "GROUP_ORDINARY": 0,
    "GROUP_RECENTRE": 1,
    "GROUP_FINAL": 2,
}
tutti_node_kind = {
    "NODE_HOST": 0,
    "NODE_SWITCH": 1,
    "NODE_SLOT": 2,
}
tutti_note_kind = {
    "NOTE_LINK": 0,
    "NOTE_UNKNOWN": 1,
    "NOTE_DOUBT": 2,
}
tutti_lockstep = {
    "LOCKSTEP_OFF": 0,
    "LOCKSTEP_RANK": 1,
    "LOCKSTEP_ALL": 2,
}
tutti_alloc_fn = C.CFUNCTYPE(C.c_void_p, C.c_void_p, C.c_void_p, C.c_size_t, C.c_size_t)


class tutti_store(C.Structure):
    _fields_ = [
        ("put", C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_char_p, C.c_void_p, C.c_size_t)),
        ("get", C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_char_p, C.c_void_p, C.c_size_t, C.POINTER(C.c_size_t), C.c_double)),
        ("ctx", C.c_void_p),
    ]


class tutti_trust(C.Structure):
    _fields_ = [
        ("secret_file", C.c_char_p),
        ("secret", C.c_void_p),
        ("n_secret", C.c_size_t),
        ("tls_cert", C.c_char_p),
        ("tls_key", C.c_char_p),
        ("tls_ca", C.c_char_p),
        ("is_plain", C.c_bool),
        ("tls_crl", C.c_char_p),
    ]


class tutti_comm_opts(C.Structure):
    _fields_ = [
        ("size", C.c_size_t),
        ("address", C.c_char_p),
        ("rank", C.c_int),
        ("n_ranks", C.c_int),
        ("timeout_s", C.c_double),
        ("alloc", tutti_alloc_fn),
        ("alloc_ctx", C.c_void_p),
        ("store", C.POINTER(tutti_store)),
        ("start_timeout_s", C.c_double),
        ("trust", tutti_trust),
        ("check", C.c_char_p),
    ]


class tutti_shrink_opts(C.Structure):
    _fields_ = [
        ("size", C.c_size_t),
        ("quorum", C.c_int),
        ("timeout_s", C.c_double),
        ("old_ranks", C.POINTER(C.c_int)),
        ("exclude", C.POINTER(C.c_int)),
        ("n_exclude", C.c_int),
        ("puts_out", C.c_bool),
    ]


class tutti_grow_opts(C.Structure):
    _fields_ = [
        ("size", C.c_size_t),
        ("address", C.c_char_p),
        ("store", C.POINTER(tutti_store)),
        ("timeout_s", C.c_double),
    ]


class tutti_call_opts(C.Structure):
    _fields_ = [
        ("size", C.c_size_t),
        ("priority", C.c_int),
        ("timeout_s", C.c_double),
        ("scale", C.c_double),
        ("callback", C.CFUNCTYPE(None, C.c_void_p, C.c_int)),
        ("callback_arg", C.c_void_p),
        ("planner", C.c_char_p),
        ("tag", C.c_int),
        ("waits", C.c_bool),
        ("is_scratch", C.c_bool),
        ("on_device", C.c_bool),
        ("after", C.c_void_p),
    ]


class tutti_shared(C.Structure):
    _fields_ = [
        ("name", C.c_char_p),
        ("buf", C.c_void_p),
        ("bytes", C.c_size_t),
    ]


class tutti_difference(C.Structure):
    _fields_ = [
        ("size", C.c_size_t),
        ("ranks", C.POINTER(C.c_int)),
        ("n_ranks", C.c_int),
        ("rank", C.c_int),
        ("like", C.c_int),
        ("buffer", C.c_size_t),
        ("hash", C.c_uint64),
        ("like_hash", C.c_uint64),
        ("bytes", C.c_uint64),
        ("like_bytes", C.c_uint64),
        ("text", C.c_char * 240),
    ]

tutti_log_fn = C.CFUNCTYPE(None, C.c_void_p, C.c_int, C.c_char_p)


class tutti_setting_info(C.Structure):
    _fields_ = [
        ("name", C.c_char_p),
        ("type", C.c_char_p),
        ("fallback", C.c_char_p),
        ("help", C.c_char_p),
        ("least", C.c_char_p),
        ("most", C.c_char_p),
        ("source", C.c_char_p),
        ("value", C.c_char * 256),
    ]


class tutti_partial_opts(C.Structure):
    _fields_ = [
        ("size", C.c_size_t),
        ("group_size", C.c_int),
        ("min_group", C.c_int),
        ("history", C.c_int),
        ("is_dynamic", C.c_bool),
        ("decay", C.c_double),
        ("max_wait_s", C.c_double),
        ("soft_wait_s", C.c_double),
        ("join_wait_s", C.c_double),
        ("recentre_every", C.c_int),
        ("end_wait_s", C.c_double),
        ("start_wait_s", C.c_double),
        ("liveness_s", C.c_double),
        ("log", C.c_char_p),
        ("timeout_s", C.c_double),
        ("planner", C.c_char_p),
        ("is_current", C.c_bool),
        ("goes_ahead", C.c_bool),
        ("trust", tutti_trust),
        ("leader", C.c_char_p),
        ("max_workers", C.c_int),
    ]


class tutti_partial_info(C.Structure):
    _fields_ = [
        ("worker", C.c_uint32),
        ("n_workers", C.c_uint32),
        ("incarnation", C.c_uint32),
        ("is_newcomer", C.c_bool),
        ("is_dynamic", C.c_bool),
        ("has_controller", C.c_bool),
        ("n_groups", C.c_uint64),
        ("n_broken", C.c_uint64),
    ]


class tutti_group_member(C.Structure):
    _fields_ = [
        ("worker", C.c_uint32),
        ("incarnation", C.c_uint32),
        ("iteration", C.c_uint64),
        ("weight", C.c_double),
    ]


class tutti_partial_group(C.Structure):
    _fields_ = [
        ("id", C.c_uint64),
        ("kind", C.c_int),
        ("n", C.c_uint32),
        ("rank", C.c_uint32),
        ("is_even", C.c_bool),
        ("iteration", C.c_uint64),
        ("members", C.POINTER(tutti_group_member)),
    ]


class tutti_partial_metrics(C.Structure):
    _fields_ = [
        ("n_workers", C.c_uint32),
        ("n_alive", C.c_uint32),
        ("n_ready", C.c_uint32),
        ("group_size", C.c_uint32),
        ("window", C.c_uint32),
        ("n_components", C.c_uint32),
        ("most_components", C.c_uint32),
        ("pad", C.c_uint32),
        ("n_groups", C.c_uint64),
        ("n_members", C.c_uint64),
        ("n_broken", C.c_uint64),
        ("n_frozen", C.c_uint64),
        ("n_holds", C.c_uint64),
        ("n_late", C.c_uint64),
        ("n_kind", C.c_uint64 * 3),
        ("n_joins", C.c_uint64),
        ("n_leaves", C.c_uint64),
        ("n_deaths", C.c_uint64),
        ("staleness", C.c_uint64 * 16),
        ("mean_staleness", C.c_double),
        ("spectral_gap", C.c_double),
        ("random_gap", C.c_double),
        ("soft_wait_s", C.c_double),
    ]


class tutti_group_decision(C.Structure):
    _fields_ = [
        ("id", C.c_uint64),
        ("kind", C.c_int),
        ("n", C.c_uint32),
        ("is_even", C.c_bool),
        ("has_model", C.c_bool),
        ("iteration", C.c_uint64),
        ("members", C.POINTER(tutti_group_member)),
    ]

tutti_group_fn = C.CFUNCTYPE(None, C.c_void_p, C.POINTER(tutti_group_decision))


class tutti_diag(C.Structure):
    _fields_ = [
        ("rank", C.c_uint32),
        ("chunk", C.c_uint32),
        ("step", C.c_uint32),
        ("line", C.c_uint32),
        ("column", C.c_uint32),
        ("text", C.c_char * 512),
    ]


class tutti_schedule_info(C.Structure):
    _fields_ = [
        ("collective", C.c_int),
        ("n_ranks", C.c_uint32),
        ("root", C.c_uint32),
        ("n_blocks", C.c_uint64),
        ("n_parts", C.c_uint64),
        ("n_chunks", C.c_uint64),
        ("n_transfers", C.c_uint64),
        ("n_steps", C.c_uint32),
        ("id", C.c_uint64),
    ]


class tutti_planner_info(C.Structure):
    _fields_ = [
        ("name", C.c_char_p),
        ("blurb", C.c_char_p),
        ("fits", C.c_char_p),
        ("auto_ranks", C.c_uint32),
    ]


class tutti_topology_info(C.Structure):
    _fields_ = [
        ("n_ranks", C.c_uint32),
        ("n_switches", C.c_uint32),
        ("n_links", C.c_uint32),
        ("id", C.c_uint64),
    ]


class tutti_node_info(C.Structure):
    _fields_ = [
        ("name", C.c_char_p),
        ("host", C.c_char_p),
        ("kind", C.c_int),
        ("rank", C.c_int),
        ("forwards", C.c_bool),
    ]


class tutti_link_info(C.Structure):
    _fields_ = [
        ("from", C.c_char_p),
        ("to", C.c_char_p),
        ("bytes_per_s", C.c_double),
        ("latency_s", C.c_double),
        ("rate_bps", C.c_uint64),
        ("twin", C.c_size_t),
        ("dev", C.c_char_p),
        ("least_bps", C.c_uint64),
    ]

tutti_route_fn = C.CFUNCTYPE(None, C.c_void_p, C.c_int, C.c_int, C.POINTER(C.c_uint32), C.c_uint32)

tutti_rail_fn = C.CFUNCTYPE(None, C.c_void_p, C.c_int, C.c_int, C.c_int, C.POINTER(C.c_uint32), C.c_uint32)


class tutti_generator_info(C.Structure):
    _fields_ = [
        ("name", C.c_char_p),
        ("form", C.c_char_p),
        ("blurb", C.c_char_p),
    ]

tutti_progress_fn = C.CFUNCTYPE(None, C.c_void_p, C.c_char_p, C.c_uint64, C.c_uint64)


class tutti_bound_info(C.Structure):
    _fields_ = [
        ("n_ranks", C.c_uint32),
        ("allreduce_s_per_byte", C.c_double),
        ("is_exact", C.c_bool),
        ("gap", C.c_double),
        ("allgather_s_per_byte", C.c_double),
        ("reducescatter_s_per_byte", C.c_double),
        ("allgather_num", C.c_uint64),
        ("allgather_den", C.c_uint64),
        ("cut_s_per_byte", C.c_double),
        ("aggregate_s_per_byte", C.c_double),
        ("latency_s", C.c_double),
    ]


class tutti_bound_opts(C.Structure):
    _fields_ = [
        ("size", C.c_size_t),
        ("gap", C.c_double),
        ("only_bounds", C.c_bool),
        ("progress", tutti_progress_fn),
        ("progress_ctx", C.c_void_p),
    ]


class tutti_probe_opts(C.Structure):
    _fields_ = [
        ("size", C.c_size_t),
        ("time_s", C.c_double),
        ("progress", tutti_progress_fn),
        ("progress_ctx", C.c_void_p),
    ]


class tutti_probe_info(C.Structure):
    _fields_ = [
        ("rank", C.c_uint32),
        ("n_ranks", C.c_uint32),
        ("n_hosts", C.c_uint32),
        ("n_interfaces", C.c_uint32),
        ("n_rounds", C.c_uint32),
        ("seconds", C.c_double),
    ]


class tutti_probe_note(C.Structure):
    _fields_ = [
        ("kind", C.c_int),
        ("text", C.c_char_p),
    ]


class tutti_probe_way(C.Structure):
    _fields_ = [
        ("from", C.c_char_p),
        ("to", C.c_char_p),
        ("from_dev", C.c_char_p),
        ("to_dev", C.c_char_p),
        ("from_address", C.c_char_p),
        ("to_address", C.c_char_p),
        ("outcome", C.c_char_p),
        ("connects", C.c_bool),
        ("is_chosen", C.c_bool),
        ("why", C.c_char_p),
        ("latency_s", C.c_double),
        ("bytes_per_s", C.c_double),
    ]


class tutti_costs(C.Structure):
    _fields_ = [
        ("message_ns", C.c_uint64),
        ("byte_ps", C.c_uint64),
        ("reduce_ps", C.c_uint64),
    ]


class tutti_plan_opts(C.Structure):
    _fields_ = [
        ("size", C.c_size_t),
        ("collective", C.c_int),
        ("root", C.c_int),
        ("size_bytes", C.c_uint64),
        ("planner", C.c_char_p),
        ("block_bytes", C.POINTER(C.c_uint64)),
        ("progress", tutti_progress_fn),
        ("progress_ctx", C.c_void_p),
        ("costs", C.POINTER(tutti_costs)),
        ("crowd", C.c_double),
        ("is_one_host", C.c_bool),
        ("burst_bytes", C.c_uint64),
    ]


class tutti_charge(C.Structure):
    _fields_ = [
        ("planner", C.c_char_p),
        ("fits", C.c_bool),
        ("is_chosen", C.c_bool),
        ("time_s", C.c_double),
        ("messages_s", C.c_double),
        ("bytes_s", C.c_double),
        ("reduce_s", C.c_double),
        ("why", C.c_char_p),
    ]

tutti_charge_fn = C.CFUNCTYPE(None, C.c_void_p, C.POINTER(tutti_charge))


class tutti_event_info(C.Structure):
    _fields_ = [
        ("begin_s", C.c_double),
        ("sent_s", C.c_double),
        ("end_s", C.c_double),
        ("bytes", C.c_uint64),
        ("step", C.c_uint32),
        ("chunk", C.c_uint32),
        ("src", C.c_uint32),
        ("dst", C.c_uint32),
        ("slice", C.c_uint32),
        ("rail", C.c_uint8),
        ("reduces", C.c_bool),
    ]

tutti_event_fn = C.CFUNCTYPE(None, C.c_void_p, C.POINTER(tutti_event_info))


class tutti_sim_opts(C.Structure):
    _fields_ = [
        ("size", C.c_size_t),
        ("size_bytes", C.c_uint64),
        ("block_bytes", C.POINTER(C.c_uint64)),
        ("elem_bytes", C.c_uint32),
        ("as_engine", C.c_bool),
        ("n_slices", C.c_uint32),
        ("front_bytes", C.c_uint64),
        ("window", C.c_uint32),
        ("front_window_bytes", C.c_uint64),
        ("overhead_s", C.c_double),
        ("gamma_s_per_byte", C.c_double),
        ("lockstep", C.c_int),
        ("by_step", C.c_bool),
        ("is_packet", C.c_bool),
        ("cut_through", C.c_bool),
        ("packet_bytes", C.c_uint32),
        ("flit_bytes", C.c_uint32),
        ("header_bytes", C.c_uint32),
        ("message_mode", C.c_bool),
        ("on_event", tutti_event_fn),
        ("event_ctx", C.c_void_p),
        ("progress", tutti_progress_fn),
        ("progress_ctx", C.c_void_p),
        ("staging_max_bytes", C.c_uint64),
        ("max_payload", C.c_uint32),
        ("burst_bytes", C.c_uint64),
        ("is_fluid", C.c_bool),
    ]


class tutti_sim_result(C.Structure):
    _fields_ = [
        ("time_s", C.c_double),
        ("max_link_utilisation", C.c_double),
        ("mean_link_utilisation", C.c_double),
        ("busiest_link", C.c_uint32),
        ("n_messages", C.c_uint64),
        ("bytes", C.c_uint64),
        ("link_bytes", C.c_uint64),
    ]


class tutti_merge_opts(C.Structure):
    _fields_ = [
        ("size", C.c_size_t),
        ("job", C.c_uint64),
        ("net", C.c_void_p),
    ]


class tutti_merge_info(C.Structure):
    _fields_ = [
        ("job", C.c_uint64),
        ("n_jobs", C.c_uint32),
        ("n_ranks", C.c_uint32),
        ("n_missing", C.c_uint32),
        ("n_calls", C.c_uint64),
        ("n_slices", C.c_uint64),
        ("n_predicted", C.c_uint64),
        ("seconds", C.c_double),
        ("clock_error_s", C.c_double),
        ("n_unclocked", C.c_uint32),
    ]


class tutti_recorded_info(C.Structure):
    _fields_ = [
        ("event", tutti_event_info),
        ("call", C.c_uint64),
        ("call_name", C.c_char_p),
        ("is_predicted", C.c_bool),
    ]

tutti_recorded_fn = C.CFUNCTYPE(None, C.c_void_p, C.POINTER(tutti_recorded_info))


class tutti_contention_info(C.Structure):
    _fields_ = [
        ("is_free", C.c_bool),
        ("step", C.c_uint32),
        ("link", C.c_uint32),
        ("n_transfers", C.c_uint32),
        ("capacity", C.c_uint32),
        ("n_overloaded", C.c_uint64),
    ]


FUNCTIONS = {
    "tutti_version": (C.c_char_p, []),
    "tutti_errname": (C.c_char_p, [C.c_int]),
    "tutti_strerror": (C.c_char_p, [C.c_int]),
    "tutti_last_message": (C.c_char_p, []),
    "tutti_type_bytes": (C.c_size_t, [C.c_int]),
    "tutti_type_name": (C.c_char_p, [C.c_int]),
    "tutti_op_name": (C.c_char_p, [C.c_int]),
    "tutti_coll_name": (C.c_char_p, [C.c_int]),
    "tutti_type_parse": (C.c_int, [C.c_char_p, C.POINTER(C.c_int)]),
    "tutti_op_parse": (C.c_int, [C.c_char_p, C.POINTER(C.c_int)]),
    "tutti_coll_parse": (C.c_int, [C.c_char_p, C.POINTER(C.c_int)]),
    "tutti_op_check": (C.c_int, [C.c_int, C.c_int]),
    "tutti_comm_create": (C.c_int, [C.POINTER(tutti_comm_opts), C.POINTER(C.c_void_p)]),
    "tutti_comm_split": (C.c_int, [C.c_void_p, C.c_int, C.c_int, C.POINTER(C.c_void_p)]),
    "tutti_comm_destroy": (None, [C.c_void_p]),
    "tutti_comm_rank": (C.c_int, [C.c_void_p]),
    "tutti_comm_size": (C.c_int, [C.c_void_p]),
    "tutti_comm_transport": (C.c_char_p, [C.c_void_p, C.c_int]),
    "tutti_comm_message": (C.c_char_p, [C.c_void_p]),
    "tutti_comm_failure": (C.c_int, [C.c_void_p]),
    "tutti_comm_abort": (None, [C.c_void_p, C.c_char_p]),
    "tutti_comm_revoke": (None, [C.c_void_p, C.c_char_p]),
    "tutti_comm_agree": (C.c_int, [C.c_void_p, C.POINTER(C.c_uint64)]),
    "tutti_comm_shrink": (C.c_int, [C.c_void_p, C.POINTER(tutti_shrink_opts), C.POINTER(C.c_void_p)]),
    "tutti_comm_grow": (C.c_int, [C.c_void_p, C.POINTER(tutti_grow_opts), C.POINTER(C.c_void_p)]),
    "tutti_comm_join": (C.c_int, [C.POINTER(tutti_comm_opts), C.POINTER(C.c_void_p)]),
    "tutti_comm_lateness": (C.c_int, [C.c_void_p, C.c_int, C.POINTER(C.c_double)]),
    "tutti_all_reduce": (C.c_int, [C.c_void_p, C.c_void_p, C.c_void_p, C.c_size_t, C.c_int, C.c_int, C.POINTER(tutti_call_opts), C.POINTER(C.c_void_p)]),
    "tutti_reduce_scatter": (C.c_int, [C.c_void_p, C.c_void_p, C.c_void_p, C.c_size_t, C.c_int, C.c_int, C.POINTER(tutti_call_opts), C.POINTER(C.c_void_p)]),
    "tutti_reduce_scatter_v": (C.c_int, [C.c_void_p, C.c_void_p, C.c_void_p, C.POINTER(C.c_size_t), C.c_int, C.c_int, C.POINTER(tutti_call_opts), C.POINTER(C.c_void_p)]),
    "tutti_all_gather": (C.c_int, [C.c_void_p, C.c_void_p, C.c_void_p, C.c_size_t, C.c_int, C.POINTER(tutti_call_opts), C.POINTER(C.c_void_p)]),
    "tutti_all_gather_v": (C.c_int, [C.c_void_p, C.c_void_p, C.c_void_p, C.POINTER(C.c_size_t), C.c_int, C.POINTER(tutti_call_opts), C.POINTER(C.c_void_p)]),
    "tutti_broadcast": (C.c_int, [C.c_void_p, C.c_void_p, C.c_void_p, C.c_size_t, C.c_int, C.c_int, C.POINTER(tutti_call_opts), C.POINTER(C.c_void_p)]),
    "tutti_reduce": (C.c_int, [C.c_void_p, C.c_void_p, C.c_void_p, C.c_size_t, C.c_int, C.c_int, C.c_int, C.POINTER(tutti_call_opts), C.POINTER(C.c_void_p)]),
    "tutti_all_to_all": (C.c_int, [C.c_void_p, C.c_void_p, C.c_void_p, C.c_size_t, C.c_int, C.POINTER(tutti_call_opts), C.POINTER(C.c_void_p)]),
    "tutti_all_to_all_v": (C.c_int, [C.c_void_p, C.c_void_p, C.POINTER(C.c_size_t), C.c_void_p, C.POINTER(C.c_size_t), C.c_int, C.POINTER(tutti_call_opts), C.POINTER(C.c_void_p)]),
    "tutti_gather": (C.c_int, [C.c_void_p, C.c_void_p, C.c_void_p, C.c_size_t, C.c_int, C.c_int, C.POINTER(tutti_call_opts), C.POINTER(C.c_void_p)]),
    "tutti_scatter": (C.c_int, [C.c_void_p, C.c_void_p, C.c_void_p, C.c_size_t, C.c_int, C.c_int, C.POINTER(tutti_call_opts), C.POINTER(C.c_void_p)]),
    "tutti_barrier": (C.c_int, [C.c_void_p, C.POINTER(tutti_call_opts), C.POINTER(C.c_void_p)]),
    "tutti_send": (C.c_int, [C.c_void_p, C.c_void_p, C.c_size_t, C.c_int, C.c_int, C.POINTER(tutti_call_opts), C.POINTER(C.c_void_p)]),
    "tutti_recv": (C.c_int, [C.c_void_p, C.c_void_p, C.c_size_t, C.c_int, C.c_int, C.POINTER(tutti_call_opts), C.POINTER(C.c_void_p)]),
    "tutti_recv_any": (C.c_int, [C.c_void_p, C.c_void_p, C.c_size_t, C.c_int, C.POINTER(C.c_int), C.POINTER(tutti_call_opts), C.POINTER(C.c_void_p)]),
    "tutti_hash": (C.c_uint64, [C.c_void_p, C.c_size_t, C.c_uint64]),
    "tutti_comm_compare": (C.c_int, [C.c_void_p, C.POINTER(tutti_shared), C.c_size_t, C.POINTER(tutti_difference)]),
    "tutti_test": (C.c_int, [C.c_void_p]),
    "tutti_wait": (C.c_int, [C.c_void_p]),
    "tutti_wait_any": (C.c_int, [C.POINTER(C.c_void_p), C.c_size_t, C.POINTER(C.c_size_t)]),
    "tutti_request_fd": (C.c_int, [C.c_void_p, C.POINTER(C.c_int)]),
    "tutti_request_event": (C.c_int, [C.c_void_p, C.POINTER(C.c_void_p)]),
    "tutti_request_callback": (C.c_int, [C.c_void_p, C.CFUNCTYPE(None, C.c_void_p, C.c_int), C.c_void_p]),
    "tutti_request_free": (None, [C.c_void_p]),
    "tutti_alloc": (C.c_void_p, [C.c_size_t]),
    "tutti_free": (None, [C.c_void_p]),
    "tutti_log_set": (None, [tutti_log_fn, C.c_void_p]),
    "tutti_setting_at": (C.c_bool, [C.c_size_t, C.POINTER(tutti_setting_info)]),
    "tutti_status": (C.c_int, [C.c_char_p, C.c_int, C.POINTER(C.c_void_p), C.POINTER(C.c_size_t)]),
    "tutti_desk_open": (C.c_int, [C.POINTER(C.c_void_p)]),
    "tutti_desk_close": (None, [C.c_void_p]),
    "tutti_desk_fd": (C.c_int, [C.c_void_p]),
    "tutti_desk_question": (C.c_char_p, [C.c_void_p]),
    "tutti_desk_waits": (C.c_double, [C.c_void_p]),
    "tutti_desk_hear": (C.c_bool, [C.c_void_p, C.c_char_p, C.c_size_t, C.POINTER(C.c_size_t)]),
    "tutti_desk_give_up": (None, [C.c_void_p]),
    "tutti_partial_open": (C.c_int, [C.c_void_p, C.POINTER(tutti_partial_opts), C.POINTER(C.c_void_p)]),
    "tutti_partial_join": (C.c_int, [C.c_char_p, C.c_int, C.POINTER(tutti_partial_opts), C.POINTER(C.c_void_p)]),
    "tutti_partial_close": (None, [C.c_void_p]),
    "tutti_partial_announce": (C.c_int, [C.c_void_p, C.c_uint64, C.c_bool, C.POINTER(tutti_call_opts), C.POINTER(C.c_void_p)]),
    "tutti_partial_reduce": (C.c_int, [C.c_void_p, C.c_void_p, C.c_size_t, C.c_int, C.POINTER(tutti_call_opts), C.POINTER(C.c_void_p)]),
    "tutti_partial_commit": (C.c_int, [C.c_void_p, C.POINTER(tutti_call_opts), C.POINTER(C.c_void_p)]),
    "tutti_partial_compare": (C.c_int, [C.c_void_p, C.POINTER(tutti_shared), C.c_size_t, C.POINTER(tutti_difference)]),
    "tutti_partial_abandon": (None, [C.c_void_p, C.c_char_p]),
    "tutti_partial_leave": (None, [C.c_void_p]),
    "tutti_partial_rejoin": (C.c_int, [C.c_void_p, C.c_bool]),
    "tutti_partial_describe": (None, [C.c_void_p, C.POINTER(tutti_partial_info)]),
    "tutti_partial_state": (C.c_int, [C.c_void_p]),
    "tutti_partial_message": (C.c_char_p, [C.c_void_p]),
    "tutti_group_kind_name": (C.c_char_p, [C.c_int]),
    "tutti_partial_group_of": (C.c_int, [C.c_void_p, C.POINTER(tutti_partial_group)]),
    "tutti_partial_measure": (C.c_int, [C.c_void_p, C.POINTER(tutti_partial_metrics)]),
    "tutti_partial_n_of_size": (C.c_uint64, [C.c_void_p, C.c_uint32]),
    "tutti_controller_open": (C.c_int, [C.c_char_p, C.c_uint32, C.POINTER(tutti_partial_opts), C.POINTER(C.c_void_p)]),
    "tutti_controller_port": (C.c_int, [C.c_void_p]),
    "tutti_controller_measure": (None, [C.c_void_p, C.POINTER(tutti_partial_metrics)]),
    "tutti_controller_n_of_size": (C.c_uint64, [C.c_void_p, C.c_uint32]),
    "tutti_controller_wait": (C.c_int, [C.c_void_p, C.c_double]),
    "tutti_controller_close": (None, [C.c_void_p]),
    "tutti_grouping_create": (C.c_int, [C.POINTER(tutti_partial_opts), C.c_uint32, tutti_group_fn, C.c_void_p, C.POINTER(C.c_void_p), C.c_void_p]),
    "tutti_grouping_free": (None, [C.c_void_p]),
    "tutti_grouping_join": (C.c_int, [C.c_void_p, C.c_uint32, C.c_uint64, C.c_uint64]),
    "tutti_grouping_announce": (C.c_int, [C.c_void_p, C.c_uint32, C.c_uint64, C.c_bool, C.c_uint64]),
    "tutti_grouping_done": (C.c_int, [C.c_void_p, C.c_uint32, C.c_uint64, C.c_bool, C.c_uint64]),
    "tutti_grouping_leave": (C.c_int, [C.c_void_p, C.c_uint32, C.c_uint64]),
    "tutti_grouping_tick": (None, [C.c_void_p, C.c_uint64]),
    "tutti_grouping_deadline": (C.c_uint64, [C.c_void_p]),
    "tutti_grouping_measure": (None, [C.c_void_p, C.POINTER(tutti_partial_metrics)]),
    "tutti_grouping_n_of_size": (C.c_uint64, [C.c_void_p, C.c_uint32]),
    "tutti_grouping_replay": (C.c_int, [C.c_char_p, C.c_size_t, tutti_group_fn, C.c_void_p, C.POINTER(tutti_partial_metrics), C.c_void_p]),
    "tutti_planner_at": (C.c_bool, [C.c_size_t, C.POINTER(tutti_planner_info)]),
    "tutti_topology_open": (C.c_int, [C.c_char_p, C.POINTER(C.c_void_p), C.POINTER(tutti_diag)]),
    "tutti_topology_parse": (C.c_int, [C.c_char_p, C.c_size_t, C.POINTER(C.c_void_p), C.POINTER(tutti_diag)]),
    "tutti_topology_free": (None, [C.c_void_p]),
    "tutti_topology_ranks": (C.c_uint32, [C.c_void_p]),
    "tutti_topology_text": (C.c_int, [C.c_void_p, C.POINTER(C.c_void_p), C.POINTER(C.c_size_t)]),
    "tutti_topology_describe": (None, [C.c_void_p, C.POINTER(tutti_topology_info)]),
    "tutti_node_at": (C.c_bool, [C.c_void_p, C.c_size_t, C.POINTER(tutti_node_info)]),
    "tutti_link_at": (C.c_bool, [C.c_void_p, C.c_size_t, C.POINTER(tutti_link_info)]),
    "tutti_routes": (C.c_int, [C.c_void_p, tutti_route_fn, C.c_void_p, C.POINTER(tutti_diag)]),
    "tutti_rails": (C.c_int, [C.c_void_p, tutti_rail_fn, C.c_void_p, C.POINTER(tutti_diag)]),
    "tutti_topology_draw": (C.c_int, [C.c_void_p, C.c_char_p, C.POINTER(C.c_void_p), C.POINTER(C.c_size_t), C.POINTER(tutti_diag)]),
    "tutti_topology_payload": (C.c_int, [C.c_void_p, C.POINTER(C.c_void_p), C.POINTER(tutti_diag)]),
    "tutti_generator_at": (C.c_bool, [C.c_size_t, C.POINTER(tutti_generator_info)]),
    "tutti_bound": (C.c_int, [C.c_void_p, C.POINTER(tutti_bound_opts), C.POINTER(tutti_bound_info), C.POINTER(tutti_diag)]),
    "tutti_bound_s": (C.c_double, [C.c_void_p, C.POINTER(tutti_bound_info), C.c_int, C.c_int, C.c_uint64]),
    "tutti_network_summary": (C.c_int, [C.c_void_p, C.c_uint64, C.c_void_p, C.c_size_t, C.POINTER(tutti_diag)]),
    "tutti_probe_run": (C.c_int, [C.POINTER(tutti_probe_opts), C.POINTER(C.c_void_p), C.POINTER(tutti_diag)]),
    "tutti_probe_free": (None, [C.c_void_p]),
    "tutti_probe_describe": (None, [C.c_void_p, C.POINTER(tutti_probe_info)]),
    "tutti_probe_topology": (C.c_void_p, [C.c_void_p]),
    "tutti_probe_note_at": (C.c_bool, [C.c_void_p, C.c_size_t, C.POINTER(tutti_probe_note)]),
    "tutti_probe_way_at": (C.c_bool, [C.c_void_p, C.c_size_t, C.POINTER(tutti_probe_way)]),
    "tutti_costs_parse": (C.c_bool, [C.c_char_p, C.POINTER(tutti_costs)]),
    "tutti_plan": (C.c_int, [C.c_void_p, C.POINTER(tutti_plan_opts), C.POINTER(C.c_void_p), C.POINTER(C.c_char_p), C.POINTER(tutti_diag)]),
    "tutti_comm_topology": (C.c_void_p, [C.c_void_p]),
    "tutti_comm_plan": (C.c_int, [C.c_void_p, C.POINTER(tutti_plan_opts), C.POINTER(C.c_void_p), C.POINTER(C.c_char_p), C.POINTER(tutti_diag)]),
    "tutti_plan_use": (C.c_int, [C.c_void_p, C.c_int, C.c_void_p, C.POINTER(tutti_diag)]),
    "tutti_predict": (C.c_int, [C.c_void_p, C.c_void_p, C.POINTER(tutti_plan_opts), C.POINTER(C.c_double), C.POINTER(tutti_diag)]),
    "tutti_explain": (C.c_int, [C.c_void_p, C.c_uint32, C.POINTER(tutti_plan_opts), tutti_charge_fn, C.c_void_p, C.POINTER(tutti_diag)]),
    "tutti_simulate": (C.c_int, [C.c_void_p, C.c_void_p, C.POINTER(tutti_sim_opts), C.POINTER(tutti_sim_result), C.POINTER(tutti_diag)]),
    "tutti_trace": (C.c_int, [C.c_void_p, C.c_void_p, C.POINTER(tutti_sim_opts), C.POINTER(tutti_sim_result), C.POINTER(C.c_void_p), C.POINTER(C.c_size_t), C.POINTER(tutti_diag)]),
    "tutti_trace_merge": (C.c_int, [C.c_char_p, C.POINTER(tutti_merge_opts), C.POINTER(tutti_merge_info), C.POINTER(C.c_void_p), C.POINTER(C.c_size_t), C.POINTER(tutti_diag)]),
    "tutti_trace_read": (C.c_int, [C.c_char_p, C.c_size_t, tutti_recorded_fn, C.c_void_p, C.POINTER(tutti_diag)]),
    "tutti_contention": (C.c_int, [C.c_void_p, C.c_void_p, C.POINTER(tutti_contention_info), C.POINTER(tutti_diag)]),
    "tutti_schedule_free": (None, [C.c_void_p]),
    "tutti_schedule_describe": (None, [C.c_void_p, C.POINTER(tutti_schedule_info)]),
    "tutti_schedule_read": (C.c_int, [C.c_char_p, C.c_size_t, C.POINTER(C.c_void_p), C.POINTER(tutti_diag)]),
    "tutti_verify": (C.c_int, [C.c_void_p, C.POINTER(tutti_diag)]),
    "tutti_export": (C.c_int, [C.c_void_p, C.c_char_p, C.POINTER(C.c_void_p), C.POINTER(C.c_size_t), C.POINTER(tutti_diag)]),
    "tutti_text_free": (None, [C.c_void_p]),
}
