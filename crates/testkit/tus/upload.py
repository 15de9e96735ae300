"""Uploads a file with tuspy: upload.py URL TOKEN FILE. Prints the offset at which it resumes after each failure."""

import sys

from tusclient import client

URL, TOKEN, FILE = sys.argv[1:]

uploader = client.TusClient(URL, headers={"Authorization": TOKEN}).uploader(FILE, retries=20, retry_delay=0.5)
ask = uploader.get_offset


def noted():
    offset = ask()
    print(f"goes on at {offset}")
    return offset


uploader.get_offset = noted
uploader.upload()
print("done")
