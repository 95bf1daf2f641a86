# What the harness of Redis' tests is given for a host that is not Redis. `cargo xtask redis-tests` has
# tests/test_helper.tcl read it before it parses its arguments.
#
# The tests themselves are those of Redis, unchanged. Replaced are four things of the harness:
# 1. Before each block it calls FUNCTION FLUSH, which a host without functions does not know.
# 2. Thresholds of encodings (hash-max-listpack-value and others) are set by CONFIG SET around tests that pass with any
#    encoding. A block also starts with settings for the server that it would start itself. Those that the host does not
#    have are left out; a test that depends on one of them fails by itself.
# 3. A test that failed may leave its connection anywhere, within a transaction for example: the next test gets a new one.
# 4. Replies about commands, subcommands and settings that the host does not have are collected. Before the result of a
#    test, a line `[absent]: NAME ...` is printed, so that the reason for which it is left out is measured and not
#    claimed.

set ::absent {}

proc note_absent {reply} {
    if {[regexp -nocase {unknown command '?`?([^ ',`]+)} $reply _ name]} {
        lappend ::absent [string toupper $name]
    } elseif {[regexp -nocase {unknown subcommand.*'([^']+)'.*Try ([A-Z]+) HELP} $reply _ part name]} {
        lappend ::absent "$name-[string toupper $part]"
    } elseif {[regexp -nocase {unknown option or number of arguments for config set - '([^']+)'} $reply _ name]} {
        lappend ::absent "CONFIG-SET"
    } elseif {[string match {*settings are arguments of 'farpool serve'*} $reply]} {
        lappend ::absent "CONFIG-SET"
    }
}

rename ::redis::redis_read_reply ::redis::redis_read_reply_of_redis
proc ::redis::redis_read_reply {id fd} {
    set code [catch {::redis::redis_read_reply_of_redis $id $fd} reply]
    # Where a test reads what comes byte by byte, errors are replies, too.
    if {$code == 1 || [string index $reply 0] eq "-"} {
        note_absent $reply
    }
    return -code $code $reply
}

rename send_data_packet send_data_packet_of_redis
proc send_data_packet {fd status data {elapsed 0}} {
    # The harness sends DEBUG LOG before each test.
    if {$status in {testing ok err}} {
        if {$status ne "testing" && [llength $::absent]} {
            send_data_packet_of_redis $fd absent [join [lsort -unique $::absent] " "]
        }
        set ::absent {}
    }
    send_data_packet_of_redis $fd $status $data $elapsed
    if {$status eq "err" && [llength $::servers]} {
        catch {reconnect}
    }
}

rename r r_of_redis
proc r {args} {
    lassign $args command part name
    if {$command eq "function" && $part eq "flush"} {
        return OK
    }
    if {[string tolower "$command $part"] eq "config set" && [regexp {^(hash|list|set|zset)-max-} $name]} {
        return OK
    }
    tailcall r_of_redis {*}$args
}

rename run_external_server_test run_external_server_test_of_redis
proc run_external_server_test {code overrides} {
    set client [redis $::host $::port 0 $::tls]
    set present {}
    foreach {name value} $overrides {
        if {![catch {$client config set $name [lindex [$client config get $name] 1]}]} {
            lappend present $name $value
        }
    }
    $client close
    set ::absent {}
    # The harness evaluates `code` two levels up.
    tailcall run_external_server_test_of_redis $code $present
}
