"""What holds for every test: property tests are judged by what they find, never by how long a case takes."""

from hypothesis import settings

settings.register_profile("pydanube", deadline=None)
settings.load_profile("pydanube")
