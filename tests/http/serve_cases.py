"""What the tests of `trine serve` share: the binary, keys, one server for the cases of a class."""

import os
import sys
import unittest

from serving import LARGE, Server

KEY, OTHER_KEY, ADMIN_KEY = "user-key-0123456789", "other-key-0123456789", "admin-key-0123456789"
_binary = ""


def trine():
    """The program under test."""
    return _binary


def start(*args, **more):
    """A server; see Server."""
    return Server(_binary, *args, **more)


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


class Shared(unittest.TestCase):
    """One server for all cases of a class."""

    args = ()
    env = {}
    model = LARGE

    @classmethod
    def setUpClass(cls):
        cls.server = start(*cls.args, model=cls.model, **cls.env)
        if "TRINE_API_KEY" in cls.env:
            cls.server.auth = bearer(KEY)

    @classmethod
    def tearDownClass(cls):
        status = cls.server.stop()
        assert status == 0, status


def main():
    global _binary
    _binary = os.path.abspath(sys.argv.pop(1))
    unittest.main()
